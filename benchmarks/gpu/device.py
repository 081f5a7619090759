"""Which GPU a measurement was made on, and the software between it and a model."""

from __future__ import annotations

import ctypes
import importlib
import shutil
import subprocess
from importlib.util import find_spec

from millstream.inference.devices import gpus


def gpu() -> dict[str, str]:
    """The GPU, its driver, the CUDA that the driver has and that each runtime was built for; what is not there is left out."""
    return _card() | _cuda()


def _card() -> dict[str, str]:
    if shutil.which("nvidia-smi") is None:
        return {}
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader,nounits", "-i", "0"]
    said = subprocess.run(query, capture_output=True, text=True, check=False)
    if said.returncode:
        return {}
    name, driver, memory = (value.strip() for value in said.stdout.split(","))
    return {"gpu": name, "gpu_memory_mib": memory, "driver": driver}


def _cuda() -> dict[str, str]:
    found: dict[str, str] = {}
    if gpus():
        version = ctypes.c_int(0)
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
        found["cuda"] = f"{version.value // 1000}.{version.value % 1000 // 10}"
    # ONNX Runtime says it here alone, and where it is built without CUDA not at all.
    built = importlib.import_module("onnxruntime.capi.build_and_package_info")
    if cuda := getattr(built, "cuda_version", None):
        found["onnxruntime_cuda"] = cuda
    if find_spec("torch"):
        torch = importlib.import_module("torch")
        found |= {"torch": str(torch.__version__), "torch_cuda": torch.version.cuda or "none"}
    return found
