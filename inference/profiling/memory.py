"""How much memory this process, and its GPU, use."""

import ctypes
from contextlib import suppress
from pathlib import Path

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # proc_pid_clear_refs(5): sets the peak to the present size


class MemoryPeak:
    """The peak of this process's memory since the object was made. Linux tells it; elsewhere it isn't known."""

    def __init__(self) -> None:
        """Forgets earlier peaks, so there is one such object at a time."""
        with suppress(OSError):
            _CLEAR.write_text(_RESET_PEAK)
            self._can_reset = True
            return
        self._can_reset = False

    def bytes(self) -> int | None:
        """The peak, in bytes."""
        return _status("VmHWM") if self._can_reset else None


def resident_memory() -> int | None:
    """The memory that this process has now, in bytes; None: this system doesn't tell."""
    return _status("VmRSS")


def _status(name: str) -> int | None:
    with suppress(OSError):
        for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return None


class _NvmlMemory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


def gpu_memory() -> int | None:
    """The used memory of the first visible GPU, in bytes, of all processes; None without NVIDIA's driver.

    NVML counts GPUs otherwise than CUDA, which `CUDA_VISIBLE_DEVICES` changes. So CUDA tells the GPU's bus ID, and NVML finds it.
    """
    try:
        cuda, nvml = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    device, bus, handle, memory = ctypes.c_int(), ctypes.create_string_buffer(64), ctypes.c_void_p(), _NvmlMemory()
    found = (
        cuda.cuInit(0) == 0
        and cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
        and cuda.cuDeviceGetPCIBusId(bus, len(bus), device) == 0
        and nvml.nvmlInit_v2() == 0
        and nvml.nvmlDeviceGetHandleByPciBusId_v2(bus, ctypes.byref(handle)) == 0
        and nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == 0
    )
    return int(memory.used) if found else None
