"""A folder on a drive that hangs, as NFS does while its server is away. If it can't be mounted, the test is skipped."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Self

import pytest

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

_DETACH = 2  # MNT_DETACH: whoever uses it keeps it


class HungFolder:
    """Covers a folder with a file system of FUSE that nobody answers for; a context manager. At the end, the folder is back."""

    def __init__(self, folder: Path) -> None:
        self._folder = os.fsencode(folder)
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._device = -1

    def __enter__(self) -> Self:
        try:
            self._device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            pytest.skip(f"needs /dev/fuse, for a folder that hangs: {error.strerror}")
        options = b"fd=%d,rootmode=40000,user_id=0,group_id=0" % self._device
        if self._libc.mount(b"hangs", self._folder, b"fuse", 0, options):
            os.close(self._device)
            pytest.skip(f"mounts a folder that hangs, which only root may: {os.strerror(ctypes.get_errno())}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._device)  # calls that hang now fail
        self._libc.umount2(self._folder, _DETACH)
