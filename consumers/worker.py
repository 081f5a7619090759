"""The worker: source -> decode -> batch -> execute -> encode -> sink, and what keeps them going.

Three threads. The caller's polls and commits and never computes (this file); one decodes, batches and runs the model
(compute.py); one encodes, produces and waits for acknowledgement (writer.py). What flows between them is bounded by what the
worker may hold in all (held.py).
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue

from consumers import metrics as m
from consumers.batcher import Limits
from consumers.compute import Compute
from consumers.decoder import TOPIC, BlockDecoder
from consumers.errors import Abandoned, StageFailed, WorkerError
from consumers.events import Answered, Barrier, Ends, Partition, Polled
from consumers.health import Health
from consumers.held import Held
from consumers.sink import Sink
from consumers.source import Source
from consumers.writer import Writer
from inference.executors.interface import Executor

log = logging.getLogger(__name__)

POLL_RECORDS = 2000  # most records of one poll
WAIT = 0.1  # seconds that the loop waits for something before it turns again
COMPANY = 0.2  # of `max_wait`, for which a record that comes alone waits for others before the loop goes on
PAUSE_AFTER = (
    0.5  # seconds without room: a short wait is cheaper than a pause, which throws away what was fetched ahead
)
TICK = 1.0  # seconds between two updates of the gauges
JOIN = (
    2.0  # seconds that a thread has to end when the worker does; a model that never returns must not keep the process
)


@dataclass(frozen=True, slots=True)
class Settings:
    """The worker's limits; times in seconds."""

    batch: Limits
    held_events: int
    held_bytes: int
    commit_every: float
    exactly_once: bool
    drain_timeout: float
    until_idle: bool


@dataclass(frozen=True, slots=True)
class Stages:
    """What the worker is put together from."""

    decoder: BlockDecoder
    executor: Executor
    source: Callable[[Callable[[list[Partition]], object]], Source]  # takes what to call before partitions go
    sink: Callable[[Source, threading.Event], Sink]  # takes the source, and when to give up waiting


class Worker:
    """One member of a pipeline's consumer group."""

    def __init__(self, settings: Settings, stages: Stages, health: Health, metrics: m.Metrics) -> None:
        self._settings = settings
        self._executor = stages.executor
        self._health = health
        self._metrics = metrics
        self._stopping = threading.Event()
        self._abandon = threading.Event()
        self._read_again = threading.Event()
        self._failure: BaseException | None = None
        self._held = Held(settings.held_events, settings.held_bytes)
        self._lock = threading.Lock()
        self._acknowledged: Ends = {}
        self._done: dict[Partition, int] = {}  # of those, the assigned partitions'
        self._lag_of: set[Partition] = set()  # whose lag is exported
        self._full_since: float | None = None
        self._paused = False
        self._ended = False
        self._ticked = 0.0
        self._first_read = self._last_acknowledged = 0.0
        self._inbox: SimpleQueue[Polled | Barrier | None] = SimpleQueue()
        self._answers: SimpleQueue[Answered | Barrier | None] = SimpleQueue()
        self._source = stages.source(self._finish)
        compute = Compute(
            self._inbox,
            self._answers,
            decoder=stages.decoder,
            limits=settings.batch,
            executor=stages.executor,
            abandon=self._abandon,
            metrics=metrics,
        )
        self._sink = stages.sink(self._source, self._abandon)
        writer = Writer(
            self._answers,
            sink=self._sink,
            held=self._held,
            acknowledge=self._acknowledge,
            read_again=self._read_again.set,
            checkpoint_every=settings.commit_every,
            checkpoint_records=settings.held_events // 4,
        )
        self._threads = [
            threading.Thread(target=self._guard, args=(run,), name=name, daemon=True)
            for name, run in (("compute", compute.run), ("write", writer.run))
        ]

    def stop(self) -> None:
        """Ask the worker to drain and end; safe from a signal handler."""
        self._stopping.set()

    def span(self) -> tuple[float, float]:
        """When the first record was read and the last was acknowledged, seconds on the monotonic clock."""
        return self._first_read, self._last_acknowledged

    def run(self) -> bool:
        """Work until told to stop, or until idle.

        Returns:
            whether all that was read is written and committed; what is not is read again by whoever comes next.

        Raises:
            WorkerError: the worker can't go on.
        """
        self._health.waiting_for = "the model's warm-up"
        self._executor.warm_up()
        self._health.waiting_for = "the broker's answer to the producer"
        self._sink.start()
        self._health.waiting_for = "the group's assignment"
        for thread in self._threads:
            thread.start()
        try:
            self._source.subscribe()
            while not self._stopping.is_set() and self._failure is None:
                self._turn()
                if self._settings.until_idle and self._source.idle and not self._held.events:
                    break
            drained = self._drain()
        finally:
            self._end()
        if isinstance(self._failure, Abandoned):
            return False
        if self._failure is not None:
            raise _as_worker_error(self._failure)
        return drained

    def _drain(self) -> bool:
        """Finish all that was read; whether that was in time.

        A rebalance at that moment refuses the commit, or aborts the transaction: both pass when the loop turns on.
        """
        until = time.monotonic() + self._settings.drain_timeout
        while not (drained := self._finish(list(self._source.epochs))):
            if self._failure is not None or time.monotonic() >= until:
                break
            self._turn()
        return drained

    def _turn(self) -> None:
        """One turn of the loop: commit what is acknowledged, read what there is room for."""
        self._health.turn()
        self._set_ready()
        self._commit(wait=False)
        if self._read_again.is_set():
            self._read_again.clear()
            self._source.rewind()
        self._update_gauges()
        if not self._has_room():
            return
        started = time.perf_counter()
        room = self._settings.held_events - self._held.events  # none while paused, when nothing but a rebalance comes
        company = self._settings.batch.max_wait * COMPANY
        polled = self._source.poll(max(min(POLL_RECORDS, room), 1), WAIT, company)
        if polled is not None:
            self._metrics.observe(m.STAGE_SECONDS, time.perf_counter() - started, "poll")
            self._take(polled)

    def _take(self, polled: Polled) -> None:
        for topic, count in Counter(map(TOPIC, polled.records)).items():
            self._metrics.count(m.RECORDS_READ, count, topic)
        self._first_read = self._first_read or polled.arrived
        self._held.add(len(polled.records), sum(map(len, polled.records)), polled.arrived)
        self._inbox.put(polled)

    def _has_room(self) -> bool:
        """Whether to poll: there is room; or there is none for long, and paused partitions are polled to stay a member."""
        if self._held.wait_for_room(0 if self._paused else WAIT):
            self._full_since = None
            if self._paused:
                self._paused = False
                self._source.resume()
            return True
        now = time.monotonic()
        self._full_since = self._full_since or now
        if not self._paused and now - self._full_since >= PAUSE_AFTER:
            self._paused = True
            self._source.pause()
        return self._paused

    def _set_ready(self) -> None:
        if self._source.assigned_once and not self._health.ready:
            self._health.ready = True
            self._metrics.set(m.READY, 1)
            log.info("ready")

    def _acknowledge(self, ends: Ends) -> None:
        with self._lock:
            self._acknowledged |= ends
        self._last_acknowledged = time.monotonic()

    def _commit(self, *, wait: bool) -> bool:
        """Commit what is acknowledged; False where `wait` and that failed."""
        with self._lock:
            acknowledged = dict(self._acknowledged)
        epochs = self._source.epochs
        # A partition that went and came back starts anew: what was acknowledged under its earlier epoch is its past.
        self._done = {p: end for p, (epoch, end) in acknowledged.items() if epochs.get(p) == epoch}
        # In a transaction the sink has committed them.
        return self._settings.exactly_once or self._source.commit(self._done, wait=wait)

    def _update_gauges(self) -> None:
        now = time.monotonic()
        if now - self._ticked < TICK:
            return
        self._ticked = now
        self._source.refresh_metadata()
        oldest = self._held.oldest()
        self._metrics.set(m.OLDEST_UNCOMMITTED, 0.0 if oldest is None else now - oldest)
        self._metrics.set(m.HELD_EVENTS, self._held.events)
        self._metrics.set(m.HELD_BYTES, self._held.bytes)
        self._metrics.set(m.IN_FLIGHT, self._answers.qsize())
        lags = self._source.lag(self._done)
        for topic, partition in self._lag_of - lags.keys():
            self._metrics.forget(m.LAG, topic, str(partition))
        for (topic, partition), lag in lags.items():
            self._metrics.set(m.LAG, lag, topic, str(partition))
        self._lag_of = set(lags)

    def _finish(self, partitions: list[Partition]) -> bool:
        """Finish and commit all that was read, within the drain time; whether that was in time.

        Called when `partitions` are about to go, and at the end. What is not done in time is dropped by its epoch, not written.
        """
        if not partitions or self._ended or self._failure is not None:
            return self._failure is None
        done = threading.Event()
        self._inbox.put(Barrier(done))
        until = time.monotonic() + self._settings.drain_timeout
        while not done.wait(WAIT) and time.monotonic() < until and self._failure is None:
            self._health.turn()
        # What is not done because the broker is away can't be committed either, and waiting for that takes its own time.
        committed = self._commit(wait=done.is_set())
        if not done.is_set() and self._failure is None:
            log.warning(
                "%d events were not finished within the drain time of %g s: they are not committed, and are read again",
                self._held.events,
                self._settings.drain_timeout,
            )
        return done.is_set() and committed and not self._read_again.is_set()

    def _end(self) -> None:
        self._ended = True  # leaving the group revokes what is assigned, and that is finished as far as it can be
        self._health.ready = False
        self._health.waiting_for = "nothing: the worker ends"
        self._metrics.set(m.READY, 0)
        self._abandon.set()
        self._inbox.put(None)
        self._source.close()
        for thread in self._threads:
            thread.join(JOIN)
        if not any(thread.is_alive() for thread in self._threads):
            self._executor.close()

    def _guard(self, run: Callable[[], None]) -> None:
        """Run a stage; whatever ends it early ends the worker, in `run`."""
        try:
            run()
        except BaseException as error:
            self._failure = self._failure or error
            self._answers.put(None)


def _as_worker_error(failure: BaseException) -> WorkerError:
    if isinstance(failure, WorkerError):
        return failure
    error = StageFailed(f"{type(failure).__name__}: {failure}")
    error.__cause__ = failure
    return error
