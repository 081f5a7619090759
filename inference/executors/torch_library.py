"""Imports torch, and limits the GPU memory that it takes."""

import importlib
import sys
from functools import cache
from typing import Any

from millstream.inference.errors import ModelConfigError
from millstream.inference.executors.error_classification import line_of

_limits: list[int] = []  # bytes, of each copy of a model that has a limit


@cache  # an import takes a microsecond even if the module is there, and each call needs it several times
def torch() -> Any:
    """Import torch, which only some models need. Raises ModelConfigError if it is not installed."""
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise ModelConfigError(
            f"a model of the repository runs in torch, which can't be imported here ({line_of(error)}). "
            f"Install Millstream's extra `torch`: {sys.executable} -m pip install 'millstream[torch]'"
        ) from None


def limit_gpu_memory(more: int) -> None:
    """Let torch take so many more bytes of GPU memory. Its limit is for the process, so the limits of all models add up."""
    _limits.append(more)
    _set_limit()


def release_gpu_memory(less: int) -> None:
    """Undo a call of `limit_gpu_memory`."""
    _limits.remove(less)
    _set_limit()


def _set_limit() -> None:
    cuda = torch().cuda
    whole = cuda.get_device_properties(0).total_memory
    cuda.set_per_process_memory_fraction(min(sum(_limits) / whole, 1.0) if _limits else 1.0)
