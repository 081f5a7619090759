"""Functions of the C files that are compiled when Millstream is installed."""

import ctypes
from functools import cache
from pathlib import Path


@cache
def compiled(library: Path, name: str) -> "ctypes._NamedFuncPointer":
    """A function of a library; it runs without the interpreter's lock.

    Raises:
        LookupError: the library was not compiled for this machine.
    """
    try:
        return ctypes.CDLL(str(library))[name]
    except (OSError, AttributeError) as missing:
        raise LookupError(str(missing)) from None
