"""A worker whose wall clock can jump: `shifted_worker.py FILE work PIPELINE ...`. FILE contains the shift: 8 bytes, in ns."""

from __future__ import annotations

import mmap
import sys
import time
from pathlib import Path

from millstream.consumers.cli import main as cli


def shift_by(file: Path) -> None:
    """Shift the wall clock by the number in `file`, which may change at any time. The monotonic clock stays right."""
    with file.open("rb") as shared:
        shift = mmap.mmap(shared.fileno(), 8, access=mmap.ACCESS_READ)
    wall = time.time_ns

    def time_ns() -> int:
        return wall() + int.from_bytes(shift[:8], "little", signed=True)

    time.time_ns = time_ns
    time.time = lambda: time_ns() / 1e9


if __name__ == "__main__":
    shift_by(Path(sys.argv[1]))
    sys.exit(cli.run(sys.argv[2:]))
