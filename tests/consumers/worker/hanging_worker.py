"""A worker whose client hangs: `hanging_worker.py FILE work PIPELINE ...`; once FILE is there, its next poll never returns."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

from millstream.consumers.cli import main as cli
from millstream.consumers.source.kafka_source import Source


def hang_once_there(file: Path) -> None:
    """Let polls hang from the moment that `file` exists."""
    poll = Source.poll

    def hanging(self: Source, *args: Any) -> Any:
        if file.exists():
            threading.Event().wait()
        return poll(self, *args)

    Source.poll = hanging  # type: ignore[assignment, method-assign]


if __name__ == "__main__":
    hang_once_there(Path(sys.argv[1]))
    sys.exit(cli.run(sys.argv[2:]))
