"""A small disk in memory that a test can fill. If it can't be mounted, the test is skipped."""

from __future__ import annotations

import errno
import subprocess
from typing import TYPE_CHECKING, Self

import pytest

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

_SIZE = 300  # MiB
_BLOCK = b"\x00" * 65536


class SmallDisk:
    """A tmpfs mounted at `folder`; a context manager."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self) -> None:
        """Fill the disk."""
        with (self.folder / "ballast").open("ab", buffering=0) as ballast:
            try:
                while True:
                    ballast.write(_BLOCK)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    def make_room(self) -> None:
        """Free the space that `fill` took."""
        (self.folder / "ballast").unlink()

    def __enter__(self) -> Self:
        self.folder.mkdir()
        try:
            subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={_SIZE}m", "tmpfs", str(self.folder)],
                check=True,
                capture_output=True,
            )
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("fills a disk of its own, which only root may mount")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        subprocess.run(["umount", str(self.folder)], check=True)
