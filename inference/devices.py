"""The devices of this machine."""

import ctypes

from millstream.inference.errors import DeviceError


def gpus() -> int:
    """The number of NVIDIA GPUs that the driver reports; 0 without a driver."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if cuda.cuInit(0) != 0 or cuda.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


def cpu_or_cuda(asked: str, model: str, executor: str) -> str:
    """The device, `cpu` or `cuda`, for an executor that supports these two.

    Args:
        asked: auto, cpu, cuda or tensorrt; auto takes CUDA if there is a GPU.
        model: the model's name, for the message.
        executor: the executor's name, for the message.

    Raises:
        DeviceError: the device doesn't exist, or this executor doesn't support it.
    """
    if asked == "tensorrt":
        raise DeviceError(
            f"the pipeline asks for `model.device: tensorrt` for model {model}, but its executor, {executor}, runs on cpu and "
            f"cuda. Write one of these or `auto`, or bring the model as ONNX."
        )
    there = gpus() > 0
    if asked == "cuda" and not there:
        raise DeviceError(
            f"the pipeline asks for `model.device: cuda` for model {model}, but no NVIDIA GPU is visible. Write `auto` or `cpu`, "
            f"or run where a GPU is."
        )
    return "cuda" if there and asked != "cpu" else "cpu"
