"""The demo's workers: processes that run `millstream work`, and never outlive the demo."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from consumers.errors import WorkerError
from consumers.metrics import ASSIGNED, BATCH_EVENTS, READY
from consumers.worker_process import DIE_WITH_PARENT, ENTRY, scrape
from topics.pipeline import Pipeline

START = 60.0  # seconds until all are ready
DRAIN = 15.0  # seconds after SIGTERM
LOG_LINES = 15  # of a worker that failed
PORT = re.compile(r"serving /metrics, /live and /ready on port (\d+)")


@dataclass(frozen=True, slots=True)
class Reading:
    """What a worker's metrics say."""

    ready: bool
    partitions: int
    batches: int  # micro-batches so far
    events: int  # in them


class WorkerProcess:
    """One worker."""

    def __init__(self, version: int, pipeline: Pipeline, log: Path) -> None:
        self.version = version
        self._log = log
        self._port: int | None = None
        # -P: the folder of millstream.py is not put on the import path.
        work = [sys.executable, "-P", str(ENTRY), "work", str(pipeline.path)]
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", str(DIE_WITH_PARENT), str(os.getpid())),
                    *(*work, "--metrics-port", "0", "--metrics-host", "127.0.0.1"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,  # Ctrl-C in the terminal reaches the demo first, which stops its workers in order
            )

    def reading(self) -> Reading | None:
        """The worker's metrics; None where it does not answer."""
        found = PORT.search(self._log.read_text(errors="replace")) if self._port is None else None
        if found is not None:
            self._port = int(found[1])
        if self._port is None:
            return None
        text = scrape(self._port)
        if text is None:
            return None
        sums = dict.fromkeys((READY.name, ASSIGNED.name, f"{BATCH_EVENTS.name}_count", f"{BATCH_EVENTS.name}_sum"), 0.0)
        for line in text.splitlines():
            name = line.partition("{")[0]
            if name in sums:
                sums[name] += float(line.rpartition(" ")[2])
        ready, partitions, batches, events = (int(value) for value in sums.values())
        return Reading(bool(ready), partitions, batches, events)

    def check(self) -> None:
        """Raise WorkerError, with the log's end, where the process has ended."""
        status = self.process.poll()
        if status is not None:
            raise self.failed(f"ended with status {status}")

    def failed(self, how: str) -> WorkerError:
        """An error about this worker."""
        lines = self._log.read_text(errors="replace").splitlines()[-LOG_LINES:]
        log = "\n".join(f"    {line}" for line in lines) or "    (nothing)"
        return WorkerError(f"the worker of version {self.version} (pid {self.process.pid}) {how}. Its log ends:\n{log}")


class Workers:
    """All workers of the demo; a context manager that leaves none behind."""

    def __init__(self, pipelines: dict[int, Pipeline], workers: int, partitions: int, folder: Path) -> None:
        """Start `workers` processes for each pipeline (by version), whose input has so many `partitions`."""
        self._partitions = partitions
        self._all: list[WorkerProcess] = []
        try:
            for version, pipeline in pipelines.items():
                for number in range(workers):
                    log = folder / f"worker-v{version}-{number}.log"
                    self._all.append(WorkerProcess(version, pipeline, log))
        except BaseException:
            self.stop()
            raise

    def wait_until_ready(self, stop: threading.Event) -> None:
        """Wait until the workers share all partitions, or `stop` is set.

        Raises:
            WorkerError: a worker ended, or is not ready in time.
        """
        until = time.monotonic() + START
        while not stop.wait(0.1):
            self.check()
            late = self._not_ready()
            if late is None:
                return
            if time.monotonic() > until:
                raise late.failed(f"was not ready within {START:g} s")

    def _not_ready(self) -> WorkerProcess | None:
        assigned: dict[int, int] = {}
        for worker in self._all:
            reading = worker.reading()
            if reading is None or not reading.ready or not reading.partitions:
                return worker
            assigned[worker.version] = assigned.get(worker.version, 0) + reading.partitions
        return next((worker for worker in self._all if assigned[worker.version] != self._partitions), None)

    def check(self) -> None:
        """Raise WorkerError where a worker has ended."""
        for worker in self._all:
            worker.check()

    def batches(self, version: int) -> tuple[int, int]:
        """Micro-batches so far and the events in them, of all workers of this version."""
        readings = [worker.reading() for worker in self._all if worker.version == version]
        return sum(r.batches for r in readings if r), sum(r.events for r in readings if r)

    def logs(self) -> WorkerError:
        """An error with the end of the first worker's log, for a failure that is no single worker's."""
        return self._all[0].failed("and perhaps others do not answer")

    def stop(self) -> None:
        """Let them drain; end those that take too long."""
        for worker in self._all:
            if worker.process.poll() is None:
                worker.process.send_signal(signal.SIGTERM)
        until = time.monotonic() + DRAIN
        try:
            for worker in self._all:
                worker.process.wait(max(until - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            pass
        finally:
            for worker in self._all:
                if worker.process.poll() is None:
                    worker.process.kill()
                worker.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
