"""A command of ours as its users start it: a process, watched through its metrics and its log."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from prometheus_client.parser import text_string_to_metric_families

from consumers.errors import WorkerError
from consumers.worker_process import DIE_WITH_PARENT, ENTRY, scrape

_PORT = re.compile(r"on port (\d+)$", re.MULTILINE)


class CommandProcess:
    """`millstream COMMAND PIPELINE ... --metrics-port 0`; a context manager that leaves nothing running."""

    def __init__(self, command: str, pipeline: Path, *options: str) -> None:
        self._command = command
        self._log = pipeline.with_name(f"{command}.log")
        line = [sys.executable, "-P", str(ENTRY), command, str(pipeline), *options, "--metrics-port", "0"]
        with self._log.open("wb") as out:
            self._process = subprocess.Popen(
                [*(sys.executable, "-I", "-S", str(DIE_WITH_PARENT), str(os.getpid())), *line],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        """What it has said so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def metrics(self) -> dict[str, float]:
        """The sum of each metric over its labels; empty where it does not answer.

        Raises:
            WorkerError: it has ended.
        """
        if self._process.poll() is not None:
            end = "\n".join(f"    {line}" for line in self.log.splitlines()[-15:])
            raise WorkerError(
                f"millstream {self._command} ended with status {self._process.returncode}. It said:\n{end}"
            )
        port = _PORT.search(self.log)
        text = None if port is None else scrape(int(port[1]))
        sums: dict[str, float] = {}
        for family in text_string_to_metric_families(text or ""):
            for sample in family.samples:
                sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
        return sums

    def stop(self) -> int:
        """Drain; returns the exit status."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(60)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()  # its children die with it
            self._process.wait()


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
