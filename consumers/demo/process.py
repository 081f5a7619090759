"""A command of ours as its users start it: a process, watched through its metrics and its log."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from prometheus_client.parser import text_string_to_metric_families

from millstream.consumers.errors import WorkerError
from millstream.consumers.supervision.child import MILLSTREAM, scrape, start, told_port

LOG_LINES = 15  # of a command that failed


class CommandProcess:
    """`millstream COMMAND PIPELINE ... --metrics-port 0`; a context manager that leaves nothing running."""

    def __init__(self, command: str, pipeline: Path, *options: str, name: str = "") -> None:
        """Start it; its `name` in errors is the command's where none is given."""
        self._name = name or f"millstream {command}"
        self._log = pipeline.with_name(f"{command}-{os.urandom(4).hex()}.log")
        self._process = start([*MILLSTREAM, command, str(pipeline), *options, "--metrics-port", "0"], self._log)

    @property
    def log(self) -> str:
        """What it has said so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def check(self) -> None:
        """Raise WorkerError where it has ended."""
        if (status := self._process.poll()) is not None:
            raise self.failed(f"ended with status {status}")

    def failed(self, how: str) -> WorkerError:
        """An error about this process, with the end of its log."""
        log = "\n".join(f"    {line}" for line in self.log.splitlines()[-LOG_LINES:]) or "    (nothing)"
        return WorkerError(f"{self._name} (pid {self._process.pid}) {how}. Its log ends:\n{log}")

    def metrics(self) -> dict[str, float]:
        """The sum of each metric over its labels; empty where it does not answer.

        Raises:
            WorkerError: it has ended.
        """
        self.check()
        port = told_port(self.log)
        text = None if port is None else scrape(port)
        sums: dict[str, float] = {}
        for family in text_string_to_metric_families(text or ""):
            for sample in family.samples:
                sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
        return sums

    def drain(self) -> None:
        """Tell it to finish what it holds and end."""
        self._process.send_signal(signal.SIGTERM)

    def wait(self, timeout: float) -> int:
        """Wait for its end; returns the exit status.

        Raises:
            subprocess.TimeoutExpired: it goes on.
        """
        return self._process.wait(timeout)

    def stop(self) -> int:
        """Drain; returns the exit status."""
        self.drain()
        return self.wait(60)

    def kill(self) -> None:
        """End it at once, where it has not ended."""
        self._process.kill()  # its children die with it
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


def wait_until(condition: Callable[[], bool], timeout: float, what: str, stop: threading.Event) -> None:
    """Wait for something that a running command does, `timeout` seconds at most.

    Raises:
        WorkerError: it was not so in time.
        KeyboardInterrupt: `stop` was set.
    """
    until = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > until:
            raise WorkerError(f"waited {timeout:g} s for {what}")
        if stop.wait(0.1):
            raise KeyboardInterrupt
