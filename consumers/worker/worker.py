"""The worker's main loop: it polls, commits, pauses and drains. It never decodes events or runs the model.

A worker has three threads. The main thread runs this loop. The compute thread decodes, batches and runs the model (compute.py).
The write thread encodes, produces and waits for delivery (writer.py). The in-flight limit bounds the events between them
(in_flight.py). `build.py` creates all parts and connects them.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

from millstream.consumers.errors import (
    Abandoned,
    EventRefused,
    MemoryShort,
    ReadBelowCommitted,
    WorkerError,
    as_worker_error,
)
from millstream.consumers.events import Barrier, FetchedBatch, Rejection
from millstream.consumers.flow.batch_window import BatchWindow
from millstream.consumers.flow.partition_names import ranges_of
from millstream.consumers.observability import metrics as m
from millstream.consumers.record_types import Key, Partition, Position
from millstream.consumers.resilience.leaving import LibraryThread
from millstream.consumers.resilience.retry import Retry
from millstream.consumers.resilience.watchdog import Subject, watch
from millstream.consumers.sink.writer import ResultSink
from millstream.consumers.worker.backpressure import POLL_INTERVAL, Backpressure
from millstream.consumers.worker.compute import DECODE_RECORDS
from millstream.consumers.worker.event_source import EventSource
from millstream.consumers.worker.gauges import Gauges
from millstream.consumers.worker.live import live
from millstream.consumers.worker.shared import Shared
from millstream.inference.executors.interface import Executor
from millstream.inference.executors.opened import OpenedModel
from millstream.schemas.dead_letters import LetterModel

if TYPE_CHECKING:
    from millstream.consumers.shadow.shadow_thread import ShadowThread

log = logging.getLogger(__name__)

# Seconds that one event that runs alone rarely exceeds. After that, the worker polls, to stay a member of the group.
USUAL_EVENT_TIME = 5.0
# Seconds that a thread has to end when the worker ends. A thread that hangs must not keep the process alive.
THREAD_JOIN_TIMEOUT = 2.0
_FORGOTTEN = (
    "a bug in Millstream: %d events were read, and never became final, though nothing runs any more. The next worker may read "
    "them again, and answer them twice. Please report this with the log"
)
_UNFINISHED = "%d events were not finished: %s"
_AWAY = "%d events were not finished, because no broker answers: %s"
_LOST = "%d events were not finished before their partitions were lost: %s"
# The offset's metadata counts workers that ended. It doesn't say how.
_ENDED = "the worker that ran it crashed, or hung beyond a time limit, each time; the workers' logs say which"
_READS = "read records"
# What a stage does, by the name of its thread, and what the other ones do.
_DOES, _FOLLOWS = (
    {"compute": "decoded events or ran the model", "write": "wrote results"},
    "followed which model answers",
)
Stage = tuple[str, Callable[[], None]]
"""The name of a thread, and what it runs."""
VersionOf = Callable[[Key, Position], LetterModel | None]
"""A record's key and place -> the version that the rollout chooses for it; None: there is no rollout, or it can't be told."""


class Models(NamedTuple):
    """The model versions of a worker."""

    first: OpenedModel  # at the start
    close: Callable[[], None]  # closes all that are loaded at the end
    prepare: Callable[[], None] = lambda: None  # called once the stages run, before the first poll
    version_of: VersionOf = lambda _key, _place: None


class Worker:
    """One member of a pipeline's consumer group."""

    def __init__(
        self,
        shared: Shared,
        *,
        source: EventSource,
        inbox: "SimpleQueue[FetchedBatch | Barrier | None]",
        window: BatchWindow,
        stages: Sequence[Stage],
        models: Models,
        sink: ResultSink,
        shadows: "ShadowThread | None",
    ) -> None:
        """Args:
        shared: what the stages share.
        source: reads the events.
        inbox: takes the records read to the compute thread.
        window: gets the arrival times, and decides from them how long a batch waits for more events.
        stages: the compute and the write stage, each runs in a thread of its own.
        models: warmed up before the first poll, and closed at the end.
        sink: started before the first poll.
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
        self._answers = shared.answers
        self._source = source
        self._inbox = inbox
        self._window = window
        self._models = models
        self._sink = sink
        self._shadows = shadows
        self._backpressure = Backpressure(source, shared)
        self._gauges = Gauges(source, shared)
        self._rewinds = 0  # how often the worker went back to the committed offsets
        self._ended = False
        self._stop_by: float | None = None  # end of the drain time; None: the worker was not seen to stop yet
        self._threads = [LibraryThread(partial(self._run_stage, name, run), name) for name, run in stages]

    def stop(self) -> None:
        """Ask the worker to drain and end. A signal handler may call it."""
        self._ending.stopping.set()

    def stop_at_once(self) -> None:
        """Ask the worker to end without finishing its events in flight: the next worker reads them again. As `stop`."""
        self._ending.at_once.set()
        self._ending.stopping.set()

    @property
    def stopped(self) -> bool:
        """Whether it was asked to stop."""
        return self._ending.stopping.is_set()

    def fail(self, error: WorkerError) -> None:
        """Let the worker end with this error; what is not committed stays so. Any thread may call it."""
        self._ending.fail(error)

    @property
    def in_flight(self) -> int:
        """The number of events that are read, and whose results are not final yet."""
        return self._budget.events

    def run(self, warmed_up: Callable[[], object] = lambda: None) -> bool:
        """Work until asked to stop. With `until_idle`, also end once all input is processed.

        Args:
            warmed_up: called once the model is warm, before the first poll.

        Returns:
            whether the results of all records read are written and committed. The next worker reads the other records again.

        Raises:
            WorkerError: the worker can't go on.
        """
        self._health.waiting_for = "the model's warm-up"
        if not self._warm_up():
            return True  # asked to end before the first poll
        warmed_up()
        self._health.waiting_for = "the broker's answer to the producer"
        self._sink.start()
        for thread in self._threads:
            thread.start()
        watch(self._watched_loop, 2 * self._health.stall_after)
        drained, unfinished = False, 0
        try:
            self._models.prepare()
            self._health.waiting_for = "the group's assignment"
            self._source.subscribe(self._hand_over)
            drained = self._work()
            unfinished = self._budget.events
            if isinstance(self._ending.failure, ReadBelowCommitted):
                self._source.refuse_past_end()
        except Exception as error:
            self._fail(_READS, error)
            if not isinstance(error, MemoryError):
                raise
        finally:
            self._end()
        if isinstance(self._ending.failure, Abandoned):
            if drained and unfinished:  # nothing waited for these: they are of partitions that this worker had lost
                log.warning(_LOST, unfinished, self._fate)
            return False
        if self._ending.failure is not None:
            raise as_worker_error(self._ending.failure)
        return drained

    def _watched_loop(self) -> Subject | None:
        """What the watchdog watches. While the broker is away, the loop may stand still.

        The partitions are lost then. The loop drops them only after the write thread's transaction, which waits for the broker.
        """
        if self._ended or self._health.broker_away is not None:
            return None
        return "the worker's loop", self._health.turned

    def _work(self) -> bool:
        """Run the loop until the worker is to end, then drain. Returns whether draining was complete in time."""
        while True:
            while not self._ending.stopping.is_set() and self._ending.failure is None:
                self._turn()
                if self._settings.until_idle and self._is_idle():
                    break
            if isinstance(self._ending.failure, EventRefused):
                self._commit(wait=True)  # the events before it
            rewinds = self._rewinds
            drained = self._drain()
            # A transaction aborted while the worker drained: its events are still to be read again, so the worker is not idle.
            if self._rewinds == rewinds or self._ending.stopping.is_set() or self._ending.failure is not None:
                return drained

    def _is_idle(self) -> bool:
        shadows_work = self._shadows is not None and self._shadows.at_work
        return self._source.idle and not self._budget.events and not shadows_work

    def _warm_up(self) -> bool:
        """Warm the executors up, and wait through an outage. Returns False if the worker was asked to end meanwhile."""
        try:
            for executor in self._models.first.executors:
                Retry(self._ending.stopping, self._health, self._metrics).call(
                    "executor", partial(self._warm, executor)
                )
        except Abandoned:
            return False
        return True

    def _warm(self, executor: Executor) -> None:
        with live(self._health, self._settings.batch_timeout):
            executor.warm_up()

    def _drain(self) -> bool:
        """Finish all events in flight. Returns whether that was complete in time.

        A rebalance at this moment makes the commit fail or aborts the transaction. So the loop goes on, and it tries again. Once
        the group has ended this worker's session, nothing is left to try: the partitions' next owners read the events again.
        """
        until = time.monotonic() + self._settings.drain_timeout
        while True:
            done = self._finish(until)
            unfinished = self._budget.events  # before the commit: results that are delivered after it are not committed
            # If the results are not done because the broker is away, a commit that waits would take even longer.
            committed = self._commit(wait=done)
            lost = self._source.lost_uncommitted
            if done and committed and not lost and not self._assignment.rewind_wanted.is_set():
                forgotten = unfinished if self._assignment.epochs else 0  # else they are of partitions that were lost
                if forgotten:
                    log.error(_FORGOTTEN, forgotten)
                return not forgotten
            if self._ending.failure is not None:
                return False
            if lost or self._ending.at_once.is_set() or self.is_over(until):
                self._warn_undrained(unfinished, lost, done=done)
                return False
            self._turn()

    def _warn_undrained(self, unfinished: int, lost: int, *, done: bool) -> None:
        """Say what becomes of the events in flight, of which so many were in lost partitions."""
        if (lost or not done) and self._health.broker_away is not None:  # that is also why partitions are lost
            log.warning(_AWAY, max(unfinished, lost), self._fate)
        elif lost:
            log.warning(_LOST, max(unfinished, lost), self._fate)
        elif self._ending.at_once.is_set() and not done:
            log.warning(_UNFINISHED, unfinished, self._fate)
        elif not done:
            log.warning(
                "%d events were not finished within the drain time of %g s: %s. With a slow model, raise `limits.drain_timeout` "
                "(and what your supervisor grants), or lower `limits.in_flight_events`",
                unfinished,
                self._settings.drain_timeout,
                self._fate,
            )
        elif not self._settings.exactly_once:  # an aborted transaction is logged already
            log.warning(
                "the last results are written, but their offsets could not be committed: the next worker reads these events "
                "again, and writes their results twice"
            )

    def is_over(self, until: float) -> bool:
        """Whether this time is over, or the drain time of a worker that stops: it has it once, also during a rebalance."""
        now = time.monotonic()
        if self._stop_by is None and self._ending.stopping.is_set():
            self._stop_by = now + self._settings.drain_timeout
        return now >= (until if self._stop_by is None else min(until, self._stop_by))

    def _turn(self) -> None:
        """One turn of the loop: commit the delivered offsets, and read as many records as there is room for."""
        self._health.turn()
        self._set_ready()
        # Looked at before the commit: all offsets delivered until then are committed before the worker goes back to them.
        again = self._assignment.rewind_wanted.is_set()
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
        """Go back to the committed offsets. If they are not known yet, return False; the worker then only stays in its group."""
        # Cleared before the offsets are requested: if another transaction aborts meanwhile, the worker goes back once more.
        self._assignment.rewind_wanted.clear()
        if self._source.rewind():
            self._rewinds += 1
            return True
        self._assignment.rewind_wanted.set()
        self._backpressure.pause()
        self._source.poll(1, POLL_INTERVAL)
        return False

    def _read(self, limit: int) -> None:
        """Poll up to `limit` records. While all partitions are paused there are none, but a rebalance takes place in the poll."""
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
        """Read and run a few events alone, because several workers crashed at these offsets."""
        if self._budget.events:
            self._wait_for_all()
            return
        self._backpressure.resume()
        polled = self._source.poll(most, POLL_INTERVAL)
        if polled is None:
            return
        counts = polled.records.counts()
        if any(map(self._guard.refuses, counts)):  # only one event was read
            topic, number, offset = place = polled.records.position(0)
            log.error(
                "workers crashed or hung running the event at offset %d of %s/%d: it is refused", offset, topic, number
            )
            # Without the version, a candidate that crashes workers would have no dead letters.
            model = self._models.version_of(polled.records.keys[0], place)
            polled = replace(polled, rejection=Rejection("crashed", _ENDED, model))
        else:
            self._source.note_running(polled.records)
        self._take(polled)
        if self._wait_for_all():
            for partition, events in counts.items():
                if self._assignment.epochs.get(partition) == polled.epochs.get(partition):
                    self._guard.done(partition, events)

    def _wait_for_all(self) -> bool:
        """Wait until all events in flight are committed, however long that takes. Returns whether they are."""
        done = threading.Event()
        self._inbox.put(Barrier(done))
        since = time.monotonic()
        while not done.wait(POLL_INTERVAL) and self._ending.failure is None and not self._ending.stopping.is_set():
            self._health.turn()
            if (
                time.monotonic() - since > USUAL_EVENT_TIME
            ):  # not sooner: a pause drops the records that were fetched ahead
                self._backpressure.pause()
                if polled := self._source.poll(1, POLL_INTERVAL):
                    self._take(polled)
        return done.is_set() and self._commit(wait=True) and not self._assignment.rewind_wanted.is_set()

    def _set_ready(self) -> None:
        away = self._health.outage or self._health.broker_away
        ready = self._source.assigned_once and away is None
        self._metrics.set(m.READY, ready)
        if self._source.assigned_once and not self._health.ready:
            self._health.ready = True
            log.info("ready")

    def _commit(self, *, wait: bool) -> bool:
        """Commit the delivered offsets. Returns False if the commit failed; only with `wait` is that known."""
        delivered = self._assignment.delivered()
        if self._settings.exactly_once:  # the write thread has committed them in a transaction
            self._source.note_committed(delivered)
            self._assignment.note_committed(delivered)
            return True
        return self._source.commit(delivered, wait=wait)

    def _hand_over(self, partitions: list[Partition]) -> None:
        """Finish and commit the batches that have started, within the drain time, before these partitions are revoked.

        Batches that start meanwhile leave out the events of these partitions: their new owners read them. So a new owner waits
        for about one batch, and not for all events in flight. Events that are not finished in time are not written later: their
        epoch is over.
        """
        if not partitions or self._ended or self._ending.failure is not None:
            return
        finished = self._assignment.leave(partitions)
        until = time.monotonic() + self._settings.drain_timeout
        while not finished.is_set() and not self.is_over(until) and self._ending.failure is None:
            if self._ending.at_once.is_set():
                break
            self._answers.put(Barrier(threading.Event()))  # the writer makes a checkpoint of what it has got
            finished.wait(POLL_INTERVAL)
            self._health.turn()
            self._commit(wait=False)  # else a crash meanwhile would repeat the results of all this time
        # Before the commit: results that are delivered after it are not committed.
        unfinished = 0 if finished.is_set() else self._source.undelivered(partitions)
        # If the results are not done because the broker is away, a commit that waits would take even longer.
        self._commit(wait=finished.is_set())
        if not finished.is_set() and not self._ending.at_once.is_set() and self._ending.failure is None:
            log.warning(
                "batches that had started were not finished within the drain time of %g s: the new owners of %s read %d events "
                "again. If a batch takes that long, lower `batch.max_events`",
                self._settings.drain_timeout,
                ranges_of(partitions),
                unfinished,
            )

    def _finish(self, until: float) -> bool:
        """Wait until the results of all events in flight are final. Returns whether they are in time.

        Events that are not finished in time are not written later: their epoch is over.
        """
        if not self._assignment.epochs or self._ending.failure is not None:
            return self._ending.failure is None
        done = threading.Event()
        self._inbox.put(Barrier(done))
        while not done.wait(POLL_INTERVAL) and not self.is_over(until) and self._ending.failure is None:
            if self._ending.at_once.is_set():
                break
            self._health.turn()
            self._commit(wait=False)  # else a crash meanwhile would repeat the results of all this time
        return done.is_set()

    @property
    def _fate(self) -> str:
        """What becomes of events that were in flight at the end."""
        again = "they are not committed, and are read again"
        if isinstance(self._ending.failure, ReadBelowCommitted):
            again = "they are not committed. Only those from the group's offset on are read again"
        if self._settings.exactly_once:
            return again
        return f"{again}. Results of some of them may be on their topic already, and are then written twice"

    def _end(self) -> None:
        self._ended = True  # leaving the group revokes the partitions, and `_hand_over` must not wait again
        self._health.ready = False
        failure = self._ending.failure
        if failure is not None and not isinstance(failure, Abandoned) and (unfinished := self._budget.events):
            log.warning(_UNFINISHED, unfinished, self._fate)
        self._health.waiting_for = (
            "nothing: the worker ends" if failure is None else f"nothing: the worker ends: {failure}"
        )
        self._metrics.set(m.READY, 0)
        self._ending.abandon.set()
        self._inbox.put(None)
        try:
            if self._shadows is not None and not self._ending.at_once.is_set():
                self._shadows.close()
        finally:
            self._source.close(self._ending.failure, lambda: not self._ending.at_once.is_set())
        for thread in self._threads:
            thread.join(0.0 if self._ending.at_once.is_set() else THREAD_JOIN_TIMEOUT)
        if not self._ending.at_once.is_set() and not any(thread.is_alive() for thread in self._threads):
            self._close_models()

    def _close_models(self) -> None:
        closing = LibraryThread(self._models.close, "closing")
        closing.start()
        closing.join(patience := self._settings.drain_timeout)
        if closing.is_alive():
            log.warning(
                "a model's close() has not come back within %g s (limits.drain_timeout): nothing waits for it", patience
            )

    def _run_stage(self, name: str, run: Callable[[], None]) -> None:
        """Run a stage. An error in it ends the worker: `run` raises it."""
        try:
            run()
        except BaseException as error:
            self._fail(_DOES.get(name, _FOLLOWS), error)

    def _fail(self, doing: str, error: BaseException) -> None:
        """Note the error that ends the worker. `doing`: see `MemoryShort`."""
        self._ending.fail(MemoryShort(doing, error) if isinstance(error, MemoryError) else error)
