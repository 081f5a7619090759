"""A worker that notes which of Millstream's functions it calls: `traced_worker.py FILE work PIPELINE ...`."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import millstream
from millstream.consumers.cli import main as cli

if TYPE_CHECKING:
    from types import FrameType

HOME = Path(millstream.__file__).parent


def main(notes: Path, arguments: list[str]) -> int:
    """Run the command; write a line for each function that was called: its file, a tab, its qualified name."""
    called: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            called.add((frame.f_code.co_filename, frame.f_code.co_qualname))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        return cli.run(arguments)
    finally:
        sys.setprofile(None)
        ours = sorted((file, name) for file, name in called if Path(file).is_relative_to(HOME))
        notes.write_text("".join(f"{Path(file).relative_to(HOME)}\t{name}\n" for file, name in ours), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
