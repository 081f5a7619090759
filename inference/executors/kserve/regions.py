"""Regions of shared memory: files in /dev/shm that this process and a server on the same machine map.

A process locks its files as long as it lives. So a file without a lock is left over from a process that was killed, whichever
container it ran in.
"""

import fcntl
import mmap
import os
import uuid
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

FOLDER = Path("/dev/shm")  # where shm_open of Linux has its files
PREFIX = "millstream-"


class Region:
    """Shared memory with a name."""

    def __init__(self, size: int) -> None:
        """Create it. `size`: bytes. Raises OSError, also if there is too little memory left."""
        self.size = size
        self.name = f"{PREFIX}{uuid.uuid4().hex}"
        self._path = FOLDER / f".{self.name}"  # `remove_left_over` doesn't look at it before it is locked
        self._file = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._path = self._path.rename(FOLDER / self.name)
            # Without this, a write ends the process if the file system has no room left.
            os.posix_fallocate(self._file, 0, size)
            self._memory = mmap.mmap(self._file, size)
        except OSError:
            self._remove()
            raise

    def write(self, parts: Iterable[Any]) -> None:
        """Write these buffers, one after another."""
        at = 0
        for part in parts:
            view = memoryview(part)
            if view.nbytes:  # Python can't cast an empty one
                self._memory[at : at + view.nbytes] = view.cast("B")
            at += view.nbytes

    def close(self) -> None:
        """Remove it. A server that has mapped it keeps its memory until it is unregistered there."""
        self._memory.close()
        self._remove()

    def _remove(self) -> None:
        self._path.unlink(missing_ok=True)
        os.close(self._file)


def remove_left_over() -> None:
    """Remove the files of processes that were killed."""
    for path in FOLDER.glob(f"{PREFIX}*"):
        with suppress(OSError):  # it is another user's, in use, or was just removed
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink(missing_ok=True)
            finally:
                os.close(file)


def exists(name: str) -> bool:
    """Whether a process of this machine has a region of this name."""
    return (FOLDER / name).exists()
