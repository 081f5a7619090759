"""Our commands as child processes, watched through their log and their metrics. They end when we do."""

import http.client
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from prometheus_client.parser import text_string_to_metric_families

from millstream.consumers.errors import WorkerError

# -P: the working folder is not put on the import path, since it may hold packages of any name.
MILLSTREAM = (sys.executable, "-P", "-m", "millstream")
"""The command, before its arguments."""
LAST_LINES = 15  # of the log, told where the process fails
_DIE_WITH_PARENT = Path(__file__).with_name("die_with_parent.py")
_PORT = re.compile(r"/(?:metrics|ready) on port (\d+)\b")
_READY = " INFO millstream.consumers.worker.worker: ready"  # how a worker's line ends
_LOGGED = re.compile(r"\S+ \S+ (DEBUG|INFO|WARNING|ERROR|CRITICAL) ")  # how a line of the log begins
_ANSWER_TIMEOUT = 1.0  # seconds


class CommandProcess:
    """`millstream COMMAND PIPELINE ... --metrics-port 0`; a context manager that leaves nothing running.

    The process ends when the thread that made it does, however that ends (on Linux).
    """

    def __init__(
        self, command: str, pipeline: Path, *options: str, name: str = "", log: Callable[[str], None] = lambda _: None
    ) -> None:
        """Start it.

        Args:
            command: `work`, for example.
            pipeline: the pipeline file.
            options: of the command.
            name: its name in errors, `millstream COMMAND` where none is given.
            log: called, from a thread, with each line of its log.
        """
        self.was_ready = False  # a worker's log says so
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
            start_new_session=True,  # Ctrl-C in the terminal reaches us first, and we end our children in order
        )
        self._reader = threading.Thread(target=self._read_log, name=f"log-{self.pid}", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def status(self) -> int | None:
        """Its exit status, once its log is read to the end; None while it runs."""
        status = self._process.poll()
        if status is not None:
            self._reader.join(1.0)
        return status

    def check(self) -> None:
        """Raise WorkerError where it has ended."""
        if (status := self.status()) is not None:
            raise self.failed(f"ended with status {status}")

    def failed(self, how: str) -> WorkerError:
        """An error about this process, with the end of its log."""
        return WorkerError(f"{self._name} (pid {self.pid}) {how}. Its log ends:\n{self.log_end()}")

    def log_end(self) -> str:
        """The last lines of its log, indented."""
        return "\n".join(f"    {line}" for line in list(self._last)) or "    (nothing)"

    def message(self) -> str:
        """The error that it ended with: the last lines that aren't of the log, indented."""
        lines: list[str] = []
        for line in reversed(list(self._last)):
            if _LOGGED.match(line):
                break
            lines.insert(0, f"    {line}")
        return "\n".join(lines) or self.log_end()

    def scrape(self) -> str | None:
        """Its metrics as Prometheus reads them; None where it does not answer. Called by any thread."""
        return None if self._port is None else scrape(self._port)

    def metrics(self) -> dict[str, float]:
        """The sum of each metric over its labels; empty where it does not answer.

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
        """End it at once, where it has not ended, and wait for that. Its children die with it."""
        self._process.kill()
        self._process.wait()

    def _read_log(self) -> None:
        """Follow the log to its end; it is the command's only output."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            text = line.rstrip("\n")
            self._last.append(text)
            if self._port is None:
                self._port = told_port(text)
            self.was_ready = self.was_ready or text.endswith(_READY)
            self._log(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


def bound(command: Sequence[str]) -> list[str]:
    """The command, for a process that ends when the thread that starts it does, however that ends (on Linux)."""
    return [sys.executable, "-I", "-S", str(_DIE_WITH_PARENT), str(os.getpid()), *command]


def told_port(log: str) -> int | None:
    """The port at which a command of ours says that it serves its metrics; None where it has not said so."""
    found = _PORT.search(log)
    return None if found is None else int(found[1])


def scrape(port: int) -> str | None:
    """The metrics that a process of this machine serves; None where it does not answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=_ANSWER_TIMEOUT) as answer:
            return str(answer.read().decode())
    except (OSError, http.client.HTTPException):
        return None
