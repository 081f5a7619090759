"""The worker's loop: polls, commits, pauses, drains, and never computes. `build.py` puts the worker together.

Three threads. This one polls and commits; one decodes, batches and runs the model (compute.py); one encodes, produces and waits
for delivery (writer.py). What flows between them is bounded by the in-flight budget (in_flight.py).
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from queue import SimpleQueue

from millstream.consumers.errors import Abandoned, EventRefused, as_worker_error
from millstream.consumers.events import Barrier, FetchedBatch, Rejection
from millstream.consumers.flow.batch_window import BatchWindow
from millstream.consumers.observability import metrics as m
from millstream.consumers.record_types import Partition
from millstream.consumers.resilience.retry import Retry
from millstream.consumers.resilience.watchdog import watch
from millstream.consumers.shadow.shadow_thread import ShadowThread
from millstream.consumers.sink.result_sink import Sink
from millstream.consumers.source.kafka_source import Source
from millstream.consumers.worker.backpressure import POLL_INTERVAL, Backpressure
from millstream.consumers.worker.compute import DECODE_RECORDS
from millstream.consumers.worker.gauges import Gauges
from millstream.consumers.worker.shared import Shared
from millstream.inference.executors.interface import Executor

log = logging.getLogger(__name__)

QUICK = 5.0  # seconds that one event by itself usually takes at most; beyond, the group is polled to stay a member
# Seconds that a thread has to end when the worker does: one that hangs must not keep the process.
THREAD_JOIN_TIMEOUT = 2.0
Stage = tuple[str, Callable[[], None]]
"""The name of a thread, and what it runs."""


class Worker:
    """One member of a pipeline's consumer group."""

    def __init__(
        self,
        shared: Shared,
        *,
        source: Source,
        inbox: "SimpleQueue[FetchedBatch | Barrier | None]",
        window: BatchWindow,
        stages: Sequence[Stage],
        executors: Sequence[Executor],
        sink: Sink,
        shadows: ShadowThread | None,
    ) -> None:
        """Args:
        shared: what the stages share.
        source: where events come from.
        inbox: what was read, for the computing stage.
        window: told what comes, so that batches wait as long as it pays.
        stages: the computing and the writing stage.
        executors: warmed up before anything is read, and closed at the end.
        sink: started before anything is read.
        shadows: closed at the end.
        """
        self._settings = shared.settings
        self._health = shared.health
        self._metrics = shared.metrics
        self._assignment = shared.assignment
        self._guard = shared.guard
        self._budget = shared.budget
        self._quotas = shared.quotas
        self._ending = shared.ending
        self._source = source
        self._inbox = inbox
        self._window = window
        self._executors = executors
        self._sink = sink
        self._shadows = shadows
        self._backpressure = Backpressure(source, shared)
        self._gauges = Gauges(source, shared)
        self._rewinds = 0  # how many times all was read again from the committed offsets
        self._ended = False
        self._threads = [
            threading.Thread(target=self._run_stage, args=(run,), name=name, daemon=True) for name, run in stages
        ]

    def stop(self) -> None:
        """Ask the worker to drain and end; safe from a signal handler."""
        self._ending.stopping.set()

    def run(self) -> bool:
        """Work until told to stop, or until idle.

        Returns:
            whether all that was read is written and committed; what is not is read again by whoever comes next.

        Raises:
            WorkerError: the worker can't go on.
        """
        self._health.waiting_for = "the model's warm-up"
        if not self._warm_up():
            return True  # told to end before anything was read
        self._health.waiting_for = "the broker's answer to the producer"
        self._sink.start()
        self._health.waiting_for = "the group's assignment"
        for thread in self._threads:
            thread.start()
        watch(lambda: None if self._ended else ("the worker's loop", self._health.turned), 2 * self._health.stall_after)
        try:
            self._source.subscribe(self._finish)
            drained = self._work()
        except Exception as error:
            self._ending.fail(error)
            raise
        finally:
            self._end()
        if isinstance(self._ending.failure, Abandoned):
            return False
        if self._ending.failure is not None:
            raise as_worker_error(self._ending.failure)
        return drained

    def _work(self) -> bool:
        """Turn until told to stop, or until idle; then drain. Whether that was in time."""
        while True:
            while not self._ending.stopping.is_set() and self._ending.failure is None:
                self._turn()
                if self._settings.until_idle and self._source.idle and not self._budget.events:
                    break
            if isinstance(self._ending.failure, EventRefused):
                self._commit(wait=True)  # what comes before the event
            rewinds = self._rewinds
            drained = self._drain()
            # What was taken back while the worker drained is not read again yet: it is not idle.
            if self._rewinds == rewinds or self._ending.stopping.is_set() or self._ending.failure is not None:
                return drained

    def _warm_up(self) -> bool:
        """Wait for the executor, as long as it is away; False where told to end meanwhile."""
        try:
            for executor in self._executors:
                Retry(self._ending.stopping, self._health, self._metrics).call("executor", executor.warm_up)
        except Abandoned:
            return False
        return True

    def _drain(self) -> bool:
        """Finish all that was read; whether that was in time.

        A rebalance at that moment refuses the commit, or aborts the transaction: both pass when the loop turns on.
        """
        until = time.monotonic() + self._settings.drain_timeout
        while not (drained := self._finish(list(self._assignment.epochs))):
            if self._ending.failure is not None or time.monotonic() >= until:
                break
            self._turn()
        return drained

    def _turn(self) -> None:
        """One turn of the loop: commit what is delivered, read what there is room for."""
        self._health.turn()
        self._set_ready()
        again = (
            self._assignment.rewind_wanted.is_set()
        )  # first: what was delivered before is committed before all is read again
        self._commit(wait=False)
        if again and not self._rewind():
            return
        self._gauges.update()
        self._source.begin()
        if (most := self._guard.most) is not None:
            self._run_carefully(most)
        elif self._backpressure.may_poll():
            room = self._settings.in_flight_events - self._budget.events
            most = DECODE_RECORDS if self._quotas is None else self._quotas.least
            self._read(max(min(most, room), 1))

    def _rewind(self) -> bool:
        """Read again what was taken back; False where that can't be yet: then only the group is kept."""
        # Before the offsets are asked for: another abort while they come is another rewind.
        self._assignment.rewind_wanted.clear()
        if self._source.rewind():
            self._rewinds += 1
            return True
        self._assignment.rewind_wanted.set()
        self._backpressure.pause()
        self._source.poll(1, POLL_INTERVAL)
        return False

    def _read(self, limit: int) -> None:
        """Read up to `limit` records; none while all is paused, when nothing but a rebalance comes."""
        started = time.perf_counter()
        polled = self._source.poll(limit, POLL_INTERVAL, self._window)
        if polled is not None:
            self._metrics.observe(m.STAGE_SECONDS, time.perf_counter() - started, "poll")
            self._take(polled)

    def _take(self, polled: FetchedBatch) -> None:
        for (topic, _), count in polled.records.counts().items():
            self._metrics.count(m.RECORDS_READ, count, topic)
            if self._quotas is not None:
                self._quotas.add(topic, count)
        self._budget.add(len(polled.records), polled.records.bytes, polled.arrived)
        self._inbox.put(polled)

    def _run_carefully(self, most: int) -> None:
        """Read and run a few events by themselves: earlier workers ended, one after the other, at what is about to run."""
        if self._budget.events:
            self._wait_for_all()
            return
        self._backpressure.resume()
        polled = self._source.poll(most, POLL_INTERVAL)
        if polled is None:
            return
        counts = polled.records.counts()
        if any(map(self._guard.refuses, counts)):  # then it is one event
            (place,), offset = counts, int(polled.records.offsets[0])
            log.error("workers crashed running the event at offset %d of %s/%d: it is refused", offset, *place)
            polled = replace(polled, rejection=Rejection("crashed", "the worker that ran it crashed, each time"))
        else:
            self._source.markers.note_running(polled.records)
        self._take(polled)
        if self._wait_for_all():
            for partition, events in counts.items():
                if self._assignment.epochs.get(partition) == polled.epochs.get(partition):
                    self._guard.done(partition, events)

    def _wait_for_all(self) -> bool:
        """Wait until all that was read is committed, however long that takes; whether it is."""
        done = threading.Event()
        self._inbox.put(Barrier(done))
        since = time.monotonic()
        while not done.wait(POLL_INTERVAL) and self._ending.failure is None and not self._ending.stopping.is_set():
            self._health.turn()
            if time.monotonic() - since > QUICK:  # a pause throws away what was fetched ahead
                self._backpressure.pause()
                if polled := self._source.poll(1, POLL_INTERVAL):
                    self._take(polled)
        return done.is_set() and self._commit(wait=True) and not self._assignment.rewind_wanted.is_set()

    def _set_ready(self) -> None:
        ready = self._source.assigned_once and self._health.outage is None
        self._metrics.set(m.READY, ready)
        if self._source.assigned_once and not self._health.ready:
            self._health.ready = True
            log.info("ready")

    def _commit(self, *, wait: bool) -> bool:
        """Commit what is delivered; False where `wait` and that failed."""
        delivered = self._assignment.delivered()
        if self._settings.exactly_once:  # the sink has committed it, in a transaction
            self._source.markers.note_committed(delivered)
            self._assignment.note_committed(delivered)
            return True
        return self._source.commit(delivered, wait=wait)

    def _finish(self, partitions: list[Partition]) -> bool:
        """Finish and commit all that was read, within the drain time; whether that was in time.

        Called when `partitions` are about to go, and at the end. What is not done in time is dropped by its epoch, not written.
        """
        if not partitions or self._ended or self._ending.failure is not None:
            return self._ending.failure is None
        done = threading.Event()
        self._inbox.put(Barrier(done))
        until = time.monotonic() + self._settings.drain_timeout
        while not done.wait(POLL_INTERVAL) and time.monotonic() < until and self._ending.failure is None:
            self._health.turn()
        # What is not done because the broker is away can't be committed either, and waiting for that takes its own time.
        committed = self._commit(wait=done.is_set())
        if not done.is_set() and self._ending.failure is None:
            log.warning(
                "%d events were not finished within the drain time of %g s: they are not committed, and are read again. With a "
                "slow model, raise `limits.drain_timeout` (and what your supervisor grants), or lower `limits.in_flight_events`",
                self._budget.events,
                self._settings.drain_timeout,
            )
        return done.is_set() and committed and not self._assignment.rewind_wanted.is_set()

    def _end(self) -> None:
        self._ended = True  # leaving the group revokes what is assigned, and that is finished as far as it can be
        self._health.ready = False
        self._health.waiting_for = "nothing: the worker ends"
        self._metrics.set(m.READY, 0)
        self._ending.abandon.set()
        self._inbox.put(None)
        try:
            if self._shadows is not None:
                self._shadows.close()
        finally:
            self._source.close(self._ending.failure)
        for thread in self._threads:
            thread.join(THREAD_JOIN_TIMEOUT)
        if not any(thread.is_alive() for thread in self._threads):
            for executor in self._executors:
                executor.close()

    def _run_stage(self, run: Callable[[], None]) -> None:
        """Run a stage; whatever ends it early ends the worker, in `run`."""
        try:
            run()
        except BaseException as error:
            self._ending.fail(error)
