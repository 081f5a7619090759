"""Folders of the tests' cache that are made once: programs that are fetched and built."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path


def made_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """The folder. If it is missing, `make` fills it; it exists only complete. Skips the test if that fails."""
    name = folder.name.rpartition("-")[0]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{name}.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)  # another process may be making it
        if not folder.exists():
            unfinished = folder.parent / f"{name}-unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            try:
                make(unfinished)
            except (AssertionError, subprocess.SubprocessError) as error:
                pytest.skip(
                    f"{name}: what the program needs can't be fetched (is the network there?): {str(error)[-500:]}"
                )
            unfinished.rename(folder)
    return folder


def digest_of(files: Iterable[Path]) -> str:
    """Changes with the content of the files that a folder is made from. It belongs to the folder's name."""
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]
