"""Programs of the deployment as processes of the tests."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from millstream.consumers.supervision.child import reported_port
from millstream.topics.local.child import end, start
from tests.broker.clients import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

ROOT = Path(__file__).parents[2]


class Program:
    """One process and its log; a context manager that ends it."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self._log = folder / f"{Path(command[-1]).name.lstrip('-')}-{os.urandom(4).hex()}.log"
        self.process = start(command, self._log, cwd=ROOT)

    @property
    def log(self) -> str:
        return self._log.read_text("utf-8", errors="replace")

    @property
    def port(self) -> int:
        """The port that it says it serves at."""
        self.wait_for(lambda: reported_port(self.log) is not None, "to tell its port")
        port = reported_port(self.log)
        assert port is not None
        return port

    def wait_for(self, condition: Callable[[], bool], what: str, timeout: float = 120) -> None:
        def holds() -> bool:
            assert self.process.poll() is None, f"it ended before {what}. Its log:\n{self.log}"
            return condition()

        wait_until(holds, timeout, f"a program {what}; its log: {self._log}")

    def children(self) -> set[int]:
        """The processes that it started."""
        found: set[int] = set()
        for file in Path(f"/proc/{self.process.pid}/task").glob("*/children"):
            with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended since
                found.update(map(int, file.read_text().split()))
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            end(self.process, signal.SIGKILL if error else signal.SIGTERM)
        if error is not None:
            error.add_note(f"The program's log ends:\n{self.log[-3000:]}")
