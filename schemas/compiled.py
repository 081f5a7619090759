"""Loads functions of the C extensions, which are compiled when Millstream is installed."""

import ctypes
from functools import cache
from pathlib import Path

from millstream.schemas.native import VARIABLE, Native, native


def compiled(library: Path, name: str) -> "ctypes._NamedFuncPointer":
    """A function of a library. It runs without the GIL.

    Raises:
        LookupError: native parts are turned off, or the library was not compiled for this machine.
    """
    if native() is Native.OFF:
        raise LookupError(f"{VARIABLE}={Native.OFF}")
    return _loaded(library, name)


@cache
def _loaded(library: Path, name: str) -> "ctypes._NamedFuncPointer":
    try:
        return ctypes.CDLL(str(library))[name]
    except (OSError, AttributeError) as missing:
        raise LookupError(str(missing)) from None
