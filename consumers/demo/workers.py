"""The demo's workers: processes that run `millstream work`. They end when the demo ends."""

import subprocess
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from millstream.consumers.errors import WorkerError
from millstream.consumers.observability.metrics import ASSIGNED, BATCH_EVENTS, READY
from millstream.consumers.supervision.child import CommandProcess
from millstream.pipeline.pipeline import Pipeline

START_TIMEOUT = 60.0  # seconds until all workers must be ready
DRAIN_TIMEOUT = 15.0  # seconds after SIGTERM until workers are killed


class Workers:
    """All workers of the demo; a context manager that ends them."""

    def __init__(self, pipelines: dict[int, Pipeline], workers: int, partitions: int) -> None:
        """Start `workers` processes for each pipeline (by version). Each input topic has `partitions` partitions."""
        self._partitions = partitions
        self._of_version: dict[int, list[CommandProcess]] = {version: [] for version in pipelines}
        try:
            for version, pipeline in pipelines.items():
                for _ in range(workers):
                    worker = CommandProcess("work", pipeline.path, name=f"the worker of version {version}")
                    self._of_version[version].append(worker)
        except BaseException:
            self.stop()
            raise

    def wait_until_ready(self, stop: threading.Event) -> None:
        """Wait until the workers share all partitions, or `stop` is set.

        Raises:
            WorkerError: a worker ended, or isn't ready in time.
        """
        until = time.monotonic() + START_TIMEOUT
        while not stop.wait(0.1):
            self.check()
            late = self._not_ready()
            if late is None:
                return
            if time.monotonic() > until:
                raise late.failed(f"was not ready within {START_TIMEOUT:g} s")

    def _not_ready(self) -> CommandProcess | None:
        for workers in self._of_version.values():
            assigned = 0.0
            for worker in workers:
                found = worker.metrics()
                if not found.get(READY.name) or not found.get(ASSIGNED.name):
                    return worker
                assigned += found[ASSIGNED.name]
            if assigned != self._partitions:
                return workers[0]
        return None

    def check(self) -> None:
        """Raise WorkerError if a worker has ended."""
        for worker in self._all():
            worker.check()

    def batches(self, version: int) -> tuple[int, int]:
        """The number of micro-batches so far, and of events in them, over all workers of this version.

        Raises:
            WorkerError: a worker has ended.
        """
        found = [worker.metrics() for worker in self._of_version[version]]
        batches, events = (sum(f.get(f"{BATCH_EVENTS.name}_{what}", 0.0) for f in found) for what in ("count", "sum"))
        return int(batches), int(events)

    def logs(self) -> WorkerError:
        """An error for a failure of no particular worker. It shows the end of the first worker's log."""
        return next(self._all()).failed("and perhaps others give no results")

    def stop(self) -> None:
        """Let all workers drain, and kill those that take too long."""
        for worker in self._all():
            worker.drain()
        until = time.monotonic() + DRAIN_TIMEOUT
        try:
            for worker in self._all():
                worker.wait(max(until - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            pass
        finally:
            for worker in self._all():
                worker.kill()

    def _all(self) -> Iterator[CommandProcess]:
        return (worker for workers in self._of_version.values() for worker in workers)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
