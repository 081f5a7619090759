"""One worker as a child process: its start, its log, its metrics, its end."""

import re
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from millstream.consumers.observability import metrics as m
from millstream.consumers.supervision.child import MILLSTREAM, bound, scrape, told_port
from millstream.consumers.supervision.true_rate import DONE, SUM, Counters, counters

_READY = " INFO millstream.consumers.worker.worker: ready"  # how the line ends
LAST_LINES = 15  # of the log, told where the worker fails
_LINE = re.compile(r"\S+ \S+ (DEBUG|INFO|WARNING|ERROR|CRITICAL) ")
_STAGE = re.compile(r'stage="([^"]*)"')
_WANTED = {m.READY.name, m.ASSIGNED.name, SUM, *DONE}


@dataclass(frozen=True, slots=True)
class Reading:
    """What a worker's metrics say."""

    at: float  # seconds on the monotonic clock
    pid: int
    ready: bool
    assigned: int  # partitions
    counters: Counters
    text: str  # all of them, as Prometheus reads them


class WorkerProcess:
    """Runs `millstream work` in a slot. It ends when the thread that made it does, however that ends (on Linux)."""

    def __init__(self, pipeline: Path, slot: str, say: Callable[[str, bool], None]) -> None:
        """Start it.

        Args:
            pipeline: the pipeline file.
            slot: its name, which lasts over restarts.
            say: called, from a thread, with each line of its log and whether that is more than information.
        """
        self.slot = slot
        self.was_ready = False  # its log says so
        self._say = say
        self._last: deque[str] = deque(maxlen=LAST_LINES)
        self._port: int | None = None
        options = ("--slot", slot, "--metrics-port", "0", "--metrics-host", "127.0.0.1")
        self._process = subprocess.Popen(
            bound([*MILLSTREAM, "work", str(pipeline), *options]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C in the terminal reaches the supervisor first, which drains its workers in order
        )
        self._reader = threading.Thread(target=self._read_log, name=f"log-{slot}", daemon=True)
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

    def last_lines(self) -> list[str]:
        """The end of its log."""
        return list(self._last)

    def drain(self) -> None:
        """Tell it to finish what it holds and end."""
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once, and wait for that."""
        self._process.kill()
        self._process.wait()

    def read(self) -> Reading | None:
        """Its metrics; None where it does not answer. Called by any thread."""
        if self._port is None:
            return None
        text = scrape(self._port)
        return None if text is None else reading_of(text, time.monotonic(), self.pid)

    def _read_log(self) -> None:
        """Follow the log to its end; it is the worker's only output."""
        assert self._process.stdout is not None
        grave = True
        for line in self._process.stdout:
            text = line.rstrip("\n")
            self._last.append(text)
            if self._port is None:
                self._port = told_port(text)
            self.was_ready = self.was_ready or text.endswith(_READY)
            level = _LINE.match(text)
            # A line without a level belongs to the one before it, or is the last word of a worker that fails.
            grave = level is None or level[1] not in {"DEBUG", "INFO"}
            self._say(text, grave)


def reading_of(text: str, at: float, pid: int) -> Reading:
    """What these metrics say."""
    samples: dict[tuple[str, str], float] = {}
    for line in text.splitlines():
        name = line.partition("{")[0]
        if name in _WANTED:
            stage = _STAGE.search(line)
            key = name, stage[1] if stage else ""
            samples[key] = samples.get(key, 0.0) + float(line.rpartition(" ")[2])
    ready, assigned = samples.get((m.READY.name, ""), 0.0), samples.get((m.ASSIGNED.name, ""), 0.0)
    return Reading(at, pid, bool(ready), int(assigned), counters(samples), text)
