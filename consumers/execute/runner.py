"""Runs one micro-batch: leaves out expired events, waits through an outage, and isolates bad events."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from millstream.consumers.errors import Abandoned
from millstream.consumers.events import BatchResult, MicroBatch
from millstream.consumers.execute.batch_start import BatchStart, no_result, not_run, sizes_of
from millstream.consumers.execute.bisecting import Result
from millstream.consumers.execute.served import Begun, Slot
from millstream.consumers.observability import metrics as m
from millstream.consumers.resilience.retry import Retry
from millstream.consumers.resilience.watchdog import Watchdog


@dataclass(slots=True, eq=False)
class _InModel:
    """Names a batch that runs. The name is made only if the batch hangs."""

    batch: MicroBatch

    def __str__(self) -> str:
        topic, partition, offset = self.batch.position
        return f"a micro-batch in the model, the first event at offset {offset} of {topic}/{partition} (limits.batch_timeout),"


class Runner:
    """Runs micro-batches in one executor slot. One thread calls it."""

    def __init__(
        self,
        *,
        max_events: int,
        watchdog: Watchdog,
        retry: Retry,
        admit: Callable[[int, MicroBatch], MicroBatch],
        is_outdated: Callable[[MicroBatch], bool],
        abandon: threading.Event,
        metrics: m.Metrics,
    ) -> None:
        """Args:
        max_events: most events of a batch.
        watchdog: ends the worker if the model hangs.
        retry: waits during an outage of the executor.
        admit, is_outdated: see `BatchStart`.
        abandon: set when no more batches are to run.
        metrics: where to count.
        """
        self._watchdog = watchdog
        self._retry = retry
        self._start = BatchStart(max_events=max_events, admit=admit, is_outdated=is_outdated, metrics=metrics)
        self._abandon = abandon
        self.max_events = max_events
        self._note_seconds = metrics.observer(m.STAGE_SECONDS, "infer")

    def answer(self, number: int, batch: MicroBatch, served: Slot) -> BatchResult:
        """Run the batch. During an outage of the executor, it waits.

        Args:
            number: of the batch, in order of submission.
            batch: what to run.
            served: what answers it, also if it has to wait or runs in parts.

        Raises:
            Abandoned: the worker must not wait any longer.
        """
        if self._abandon.is_set():
            raise Abandoned(f"{batch.events} events and more were not run in time")
        batch = self._start.admit(number, batch)
        work = self._start.begin(batch)
        begun: Begun | None = None

        def once() -> BatchResult:
            nonlocal work, begun
            # It was tried before: events may have become too late during the outage.
            if work is not None and begun is not None:
                still = self._start.still(work)
                if still is None or still.events < work.events:
                    work, begun = still, None
            if work is None:
                return not_run(number, batch)
            if not work.events:
                return work.result(number, no_result(), 0.0, served.models)
            begun = begun or served.begin(work)
            result, took = self._timed(begun.run, work.events)
            choices = None if begun.choices is None else begun.choices(result[1])
            return work.result(number, result, took, served.models, begun.variants, choices)

        return self._retry.call(
            "executor", partial(self._watchdog.watched, _InModel(batch), once), lambda _error: batch.position
        )

    def _timed(self, run: Callable[[], Result], events: int) -> tuple[Result, float]:
        """The result of so many events, and the seconds that it took."""
        started = time.perf_counter()
        result = run()
        took = time.perf_counter() - started
        batches = len(sizes_of(events, self.max_events))
        for _ in range(batches):
            self._note_seconds(took / batches)
        return result, took
