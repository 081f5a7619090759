"""Locks between the processes of a machine. The system releases them when a process ends, however it ends."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from millstream.inference.errors import SourceUnavailable

TRY_EVERY = 0.05  # seconds


def lock(path: Path, *, shared: bool = False, timeout: float = 0.0) -> int | None:
    """Lock a file, which is created if it is missing. Returns its descriptor, for `unlock`; None: not free in time.

    Args:
        path: the file.
        shared: whether others may hold it too, if they share it as well.
        timeout: seconds to wait for it.
    """
    deadline = time.monotonic() + timeout
    how = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, how)
            if _is_still(path, descriptor):
                return descriptor
        except BlockingIOError:
            if time.monotonic() >= deadline:
                os.close(descriptor)
                return None
            time.sleep(TRY_EVERY)
        except OSError:  # such as a file system without locks
            os.close(descriptor)
            raise
        os.close(descriptor)


def unlock(descriptor: int) -> None:
    """Release a lock."""
    os.close(descriptor)


def remove(path: Path) -> None:
    """Delete the file of a lock that this process holds alone. Others that wait for it then lock a new file."""
    with suppress(FileNotFoundError):
        path.unlink()


@contextmanager
def locked(path: Path, timeout: float, what: str) -> Iterator[None]:
    """Hold the lock alone. Raises SourceUnavailable if it isn't free in time; `what`: whom the others have to end."""
    descriptor = lock(path, timeout=timeout)
    if descriptor is None:
        raise SourceUnavailable(
            f"{path}: another process has held this lock for {timeout:g} s ({what}). End that process."
        )
    try:
        yield
    finally:
        remove(path)
        unlock(descriptor)


def _is_still(path: Path, descriptor: int) -> bool:
    """Whether the path still names the locked file: its last holder may have deleted it meanwhile."""
    try:
        named = path.stat()
    except FileNotFoundError:
        return False
    held = os.fstat(descriptor)
    return (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino)
