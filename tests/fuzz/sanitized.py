"""The C extensions, compiled with the address and the undefined-behaviour sanitizer."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from hatch_build import LIBRARIES, compile_library

_ROOT = Path(__file__).parents[2]
_FLAGS = "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-g", "-O1"


class NoSanitizersError(Exception):
    """The compiler has none, or there is none; the message says which."""


def compile_sanitized(folder: Path) -> Mapping[str, str]:
    """Compile the extensions into the folder; returns the environment that a process needs which loads them.

    Raises NoSanitizersError.
    """
    runtime = _runtime()
    environ = {
        "LD_PRELOAD": runtime,
        "PYTHONMALLOC": "malloc",  # each object of Python's is apart
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    try:
        for source, library in LIBRARIES.items():
            compile_library(_ROOT / source, folder / Path(library).name, *_FLAGS)
        subprocess.run(
            [sys.executable, "-c", ""], env={**os.environ, **environ}, check=True, capture_output=True, text=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise NoSanitizersError(str(getattr(error, "stderr", None) or error)) from None
    return environ


def _runtime() -> str:
    """The address sanitizer's library, which a process that was not compiled with it must load first."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    for name in ("libasan.so", "libclang_rt.asan-x86_64.so"):
        try:
            found = subprocess.run([*compiler, f"-print-file-name={name}"], check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise NoSanitizersError(f"no C compiler: {error}") from None
        if Path(path := found.stdout.strip()).is_absolute():
            return path
    raise NoSanitizersError(f"{compiler[0]} has no library of the address sanitizer")
