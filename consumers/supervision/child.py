"""Runs Millstream's commands as child processes, and watches their logs and metrics. They end when the parent ends."""

import http.client
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Self

from prometheus_client.parser import text_string_to_metric_families

from millstream.consumers.errors import WorkerError
from millstream.consumers.observability.json_log import as_text, without_half_line
from millstream.topics.local.child import bound

# -P: don't put the working folder on the import path, because it may contain packages of any name.
MILLSTREAM = (sys.executable, "-P", "-m", "millstream")
"""The `millstream` command without arguments."""
LAST_LINES = 15  # lines of the log that an error shows
_PORT = re.compile(r"/(?:metrics|ready) on port (\d+)\b")
_READY = " INFO millstream.consumers.worker.worker: ready"  # end of the line that a worker logs when it is ready
_TOTALS = " INFO millstream: totals: "  # in the line that a worker logs when it ends by itself after it was ready
_LOGGED = re.compile(r"\S+ \S+ (DEBUG|INFO|WARNING|ERROR|CRITICAL) ")  # start of a log line
_ANSWER_TIMEOUT = 1.0  # seconds


class CommandProcess:
    """Runs `millstream COMMAND PIPELINE ... --metrics-port 0`; a context manager that ends the process.

    On Linux, the process also ends when the thread that created it ends, even if that thread's process is killed.
    """

    def __init__(
        self, command: str, pipeline: Path, *options: str, name: str = "", log: Callable[[str], None] = lambda _: None
    ) -> None:
        """Start it.

        Args:
            command: for example, `work`.
            pipeline: the pipeline file.
            options: the command's options.
            name: its name in errors; by default `millstream COMMAND`.
            log: called from a thread with each line of its log.
        """
        self.was_ready = False  # whether the log showed that the worker was ready
        self.told_totals = False  # whether the log showed its totals
        self._name = name or f"millstream {command}"
        self._log = log
        self._last: deque[str] = deque(maxlen=LAST_LINES)
        self._port: int | None = None
        here = ("--metrics-port", "0", "--metrics-host", "127.0.0.1")
        self._process = subprocess.Popen(
            bound([*MILLSTREAM, command, str(pipeline), *options, *here]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C in the terminal reaches only the parent, which then drains its children
        )
        self._reader = threading.Thread(target=self._read_log, name=f"log-{self.pid}", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The process ID."""
        return self._process.pid

    def status(self) -> int | None:
        """Its exit status, after its log was read to the end; None while it runs."""
        status = self._process.poll()
        if status is not None:
            self._reader.join(1.0)
        return status

    def check(self) -> None:
        """Raise WorkerError if it has ended."""
        if (status := self.status()) is not None:
            raise self.failed(f"ended with status {status}")

    def failed(self, how: str) -> WorkerError:
        """An error about this process, with the end of its log."""
        return WorkerError(f"{self._name} (pid {self.pid}) {how}. Its log ends:\n{self.log_end()}")

    def log_end(self) -> str:
        """The last lines of its log, indented."""
        return "\n".join(f"    {line}" for line in list(self._last)) or "    (nothing)"

    def message(self) -> str:
        """The error that ended it, indented: the lines after the last log line."""
        lines: list[str] = []
        for line in reversed(list(self._last)):
            if _LOGGED.match(line):
                break
            lines.insert(0, f"    {line}")
        return "\n".join(lines) or self.log_end()

    def scrape(self) -> str | None:
        """Its metrics in Prometheus's text format; None if it doesn't respond. Any thread may call this."""
        return None if self._port is None else scrape(self._port)

    def readiness(self) -> str | None:
        """What its `/ready` says; None if it doesn't respond. Any thread may call this."""
        return None if self._port is None else _get(self._port, "/ready")

    def metrics(self) -> dict[str, float]:
        """The sum of each metric over its labels; empty if it doesn't respond.

        Raises:
            WorkerError: it has ended.
        """
        self.check()
        sums: dict[str, float] = {}
        for family in text_string_to_metric_families(self.scrape() or ""):
            for sample in family.samples:
                sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
        return sums

    def drain(self) -> None:
        """Tell it to finish the events in flight and end."""
        self._process.send_signal(signal.SIGTERM)

    def wait(self, timeout: float) -> int:
        """Wait for its end; returns the exit status.

        Raises:
            subprocess.TimeoutExpired: it is still running.
        """
        return self._process.wait(timeout)

    def stop(self) -> int:
        """Drain; returns the exit status."""
        self.drain()
        return self.wait(60)

    def kill(self) -> None:
        """Kill it if it still runs, and wait for its end. Its children end with it."""
        self._process.kill()
        self._process.wait()

    def _read_log(self) -> None:
        """Read the log to its end. The command has no other output."""
        assert self._process.stdout is not None
        for line in chain.from_iterable(without_half_line(read.rstrip("\n")) for read in self._process.stdout):
            text = as_text(line)
            self._last.extend(text.split("\n"))
            if self._port is None:
                self._port = reported_port(text)
            self.was_ready = self.was_ready or text.endswith(_READY)
            self.told_totals = self.told_totals or _TOTALS in text
            self._log(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


def reported_port(log: str) -> int | None:
    """The metrics port that a Millstream command names in this log line; None if the line names none."""
    found = _PORT.search(log)
    return None if found is None else int(found[1])


def scrape(port: int) -> str | None:
    """The metrics that a process of this machine serves; None if it doesn't respond."""
    return _get(port, "/metrics")


def _get(port: int, path: str) -> str | None:
    asked = http.client.HTTPConnection("127.0.0.1", port, timeout=_ANSWER_TIMEOUT)
    try:
        asked.request("GET", path)
        return asked.getresponse().read().decode()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        asked.close()
