"""Page-locked ("pinned") host memory: a GPU copies from it in the background. Memory that is not pinned takes a detour."""

import ctypes
import weakref
from functools import cache
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

_PORTABLE = 1  # CU_MEMHOSTALLOC_PORTABLE: pinned for every CUDA context of the process


def pinned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """An array in pinned memory with arbitrary content. Where the driver gives none, and for texts, it is an ordinary array."""
    size = prod(shape) * dtype.itemsize
    if dtype.hasobject or not size or (driver := _driver()) is None:
        return np.empty(shape, dtype)
    address = ctypes.c_void_p()
    if driver.cuMemHostAlloc(ctypes.byref(address), ctypes.c_size_t(size), _PORTABLE) or address.value is None:
        return np.empty(shape, dtype)
    memory = (ctypes.c_byte * size).from_address(address.value)
    # All views keep `memory` alive. At the end of the process, the driver frees everything itself.
    weakref.finalize(memory, driver.cuMemFreeHost, ctypes.c_void_p(address.value)).atexit = False
    return np.frombuffer(memoryview(memory), dtype).reshape(shape)


@cache
def _context() -> tuple[ctypes.CDLL, ctypes.c_void_p] | None:
    """The driver, and the context of the first GPU that all runtimes of the process share; None: there is no GPU."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device, context = ctypes.c_int(), ctypes.c_void_p()
    if (
        driver.cuInit(0)
        or driver.cuDeviceGet(ctypes.byref(device), 0)
        or driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
    ):
        return None
    return driver, context


def _driver() -> ctypes.CDLL | None:
    """The driver, with a context for this thread; None: there is no GPU."""
    if (found := _context()) is None or found[0].cuCtxSetCurrent(found[1]):
        return None
    return found[0]
