"""The worker: source -> decode -> batch -> execute -> encode -> sink, and what keeps them going.

Three threads. The caller's polls and commits and never computes (this file); one decodes, batches and runs the model
(compute.py); one encodes, produces and waits for acknowledgement (writer.py). What flows between them is bounded by what the
worker may hold in all (held.py).
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from queue import SimpleQueue

from millstream.consumers.decode.isolating_decoder import IsolatingDecoder
from millstream.consumers.errors import Abandoned, as_worker_error
from millstream.consumers.events import Answers, Barrier, Ends, Polled, Rejection
from millstream.consumers.execute.lanes import Lanes
from millstream.consumers.execute.poison import Isolation
from millstream.consumers.execute.runner import Runner
from millstream.consumers.flow.held import Held, Shares
from millstream.consumers.observability import metrics as m
from millstream.consumers.observability.health import Health
from millstream.consumers.record_types import Partition
from millstream.consumers.resilience.patience import Patience
from millstream.consumers.resilience.safety_net import SafetyNet
from millstream.consumers.resilience.watchdog import Watchdog, watch
from millstream.consumers.sink.writer import Checkpoints, Writer
from millstream.consumers.source.forward import Forward
from millstream.consumers.worker.compute import DECODE_RECORDS, Compute
from millstream.consumers.worker.stages import Settings, Stages
from millstream.inference.executors.interface import Executor

log = logging.getLogger(__name__)

CHECKPOINT = 1 / 2  # of what a worker may hold, is written at most before it is made to count
WAIT = 0.1  # seconds that the loop waits for something before it turns again
PAUSE_AFTER = 0.5  # seconds without room; a shorter wait is cheaper than a pause, which drops what was fetched ahead
BUSY_AFTER = 1.0  # seconds that the oldest event is held, from which on the shadows are left out
TICK = 1.0  # seconds between two updates of the gauges
QUICK = 5.0  # seconds that one event by itself usually takes at most; beyond, the group is polled to stay a member
DECODE_TIMEOUT = 90.0  # seconds at least: a slow registry may take half of it
NONE: frozenset[str] = frozenset()
JOIN = 2.0  # seconds that a thread has to end when the worker does: one that hangs must not keep the process


class Worker:
    """One member of a pipeline's consumer group."""

    def __init__(self, settings: Settings, stages: Stages, health: Health, metrics: m.Metrics) -> None:
        self._settings = settings
        self._executors = stages.executors
        self._health = health
        self._metrics = metrics
        self._stopping = threading.Event()
        self._abandon = threading.Event()
        self._read_again = threading.Event()
        self._rewinds = 0  # how many times all was read again from the committed offsets
        self._failure: BaseException | None = None
        self._guard = stages.guard
        self._held = Held(settings.held_events, settings.held_bytes // 2, settings.weight, settings.batch.max_events)
        self._shares = Shares(settings.weights, settings.held_events // 2) if settings.weights else None
        self._lock = threading.Lock()
        self._acknowledged: Ends = {}
        self._done: dict[Partition, int] = {}  # of those, the assigned partitions'
        self._lag_of: set[Partition] = set()  # whose lag is exported
        self._full_since: float | None = None
        self._paused = False
        self._ended = False
        self._ticked = 0.0
        self._inbox: SimpleQueue[Polled | Barrier | None] = SimpleQueue()
        self._answers: Answers = SimpleQueue()
        self._source = stages.source(self._finish)
        patience = Patience(self._abandon, health, metrics)
        lanes = Lanes(
            [self._runner(one, patience) for _ in range(stages.in_flight) for one in stages.executors],
            self._answers,
            ahead=stages.ahead,
            # In a transaction are exactly the results below the offsets that it commits.
            ordering="partition" if settings.exactly_once else settings.ordering,
            abandon=self._abandon,
            fail=self._fail,
        )
        patience.before_waiting = lanes.flush  # an outage must not hold back the results that are there
        compute = Compute(
            self._inbox,
            self._answers,
            decoder=IsolatingDecoder(
                stages.decoder,
                patience=patience,
                watchdog=Watchdog(max(2 * health.stall_after, DECODE_TIMEOUT)),
                metrics=metrics,
            ),
            limits=settings.batch,
            lanes=lanes,
            metrics=metrics,
            shares=self._shares,
        )
        compute.forward = Forward(self._source.starts.begins)
        self._window = compute.window
        self._sink = stages.sink(self._source, self._abandon)
        self._shadows = stages.shadows(self._source, self._busy) if stages.shadows else None
        writer = Writer(
            self._answers,
            sink=self._sink,
            held=self._held,
            acknowledge=self._acknowledge,
            read_again=self._read_again.set,
            checkpoints=Checkpoints(settings.commit_every, CHECKPOINT, settings.exactly_once),
            window=self._window,
            offer=self._shadows.offer if self._shadows else None,
        )
        self._threads = [
            threading.Thread(target=self._run_stage, args=(run,), name=name, daemon=True)
            for name, run in (("compute", compute.run), ("write", writer.run))
        ]

    def _runner(self, executor: Executor, patience: Patience) -> Runner:
        limits = self._settings.batch
        return Runner(
            Isolation(
                executor.run,
                max_events=limits.max_events,
                allow_nan_outputs=self._settings.allow_nan_outputs,
                net=SafetyNet("infer", self._metrics),
            ),
            max_events=limits.max_events,
            watchdog=Watchdog(self._settings.batch_timeout),
            patience=patience,
            abandon=self._abandon,
            metrics=self._metrics,
        )

    def _busy(self) -> bool:
        """Whether the primary has a backlog: then nothing is compared."""
        oldest = self._held.oldest()
        late = oldest is not None and time.monotonic() - oldest > BUSY_AFTER
        return late or self._held.events > self._settings.held_events // 4

    def stop(self) -> None:
        """Ask the worker to drain and end; safe from a signal handler."""
        self._stopping.set()

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
            self._source.subscribe()
            drained = self._work()
        except Exception as error:
            self._fail(error)
            raise
        finally:
            self._end()
        if isinstance(self._failure, Abandoned):
            return False
        if self._failure is not None:
            raise as_worker_error(self._failure)
        return drained

    def _work(self) -> bool:
        """Turn until told to stop, or until idle; then drain. Whether that was in time."""
        while True:
            while not self._stopping.is_set() and self._failure is None:
                self._turn()
                if self._settings.until_idle and self._source.idle and not self._held.events:
                    break
            rewinds = self._rewinds
            drained = self._drain()
            # What was taken back while the worker drained is not read again yet: it is not idle.
            if self._rewinds == rewinds or self._stopping.is_set() or self._failure is not None:
                return drained

    def _warm_up(self) -> bool:
        """Wait for the executor, as long as it is away; False where told to end meanwhile."""
        try:
            for executor in self._executors:
                Patience(self._stopping, self._health, self._metrics).call("executor", executor.warm_up)
        except Abandoned:
            return False
        return True

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
        again = (
            self._read_again.is_set()
        )  # looked at first: what was acknowledged before is taken note of before all is read again
        self._commit(wait=False)
        if again and not self._rewind():
            return
        self._update_gauges()
        self._source.begin()
        if (most := self._guard.most) is not None:
            self._run_carefully(most)
        elif self._has_room():
            room = self._settings.held_events - self._held.events
            most = DECODE_RECORDS if self._shares is None else self._shares.least
            self._read(max(min(most, room), 1))

    def _rewind(self) -> bool:
        """Read again what was taken back; False where that can't be yet: then only the group is kept."""
        # Before the offsets are asked for: another abort while they come is another rewind.
        self._read_again.clear()
        if self._source.rewind():
            self._rewinds += 1
            return True
        self._read_again.set()
        self._paused = True
        self._source.pause(self._source.topics)
        self._source.poll(1, WAIT)
        return False

    def _read(self, limit: int) -> None:
        """Read up to `limit` records; none while all is paused, when nothing but a rebalance comes."""
        started = time.perf_counter()
        polled = self._source.poll(limit, WAIT, self._window)
        if polled is not None:
            self._metrics.observe(m.STAGE_SECONDS, time.perf_counter() - started, "poll")
            self._take(polled)

    def _take(self, polled: Polled) -> None:
        for (topic, _), count in polled.records.counts().items():
            self._metrics.count(m.RECORDS_READ, count, topic)
            if self._shares is not None:
                self._shares.add(topic, count)
        self._held.add(len(polled.records), polled.records.bytes, polled.arrived)
        self._inbox.put(polled)

    def _has_room(self) -> bool:
        """Whether to poll: there is room; or there is none for long, and paused partitions are polled to stay a member."""
        wait = 0 if self._paused else WAIT
        if self._health.outage is None and self._held.wait_for_room(wait, paused=self._paused):
            self._full_since = None
            self._paused = False
            self._source.pause(self._shares.full if self._shares is not None else NONE)
            return True
        now = time.monotonic()
        self._full_since = self._full_since or now
        if now - self._full_since >= PAUSE_AFTER:
            self._paused = True
            self._source.pause(self._source.topics)
        else:
            self._stopping.wait(WAIT)
        return self._paused

    def _run_carefully(self, most: int) -> None:
        """Read and run a few events by themselves: earlier workers ended, one after the other, at what is about to run."""
        if self._held.events:
            self._wait_for_all()
            return
        self._source.pause(NONE)
        polled = self._source.poll(most, WAIT)
        if polled is None:
            return
        counts = polled.records.counts()
        if any(map(self._guard.refuses, counts)):  # then it is one event
            (place,), offset = counts, int(polled.records.offsets[0])
            log.error("workers crashed running the event at offset %d of %s/%d: it is refused", offset, *place)
            polled = replace(polled, refuse=Rejection("crashed", "the worker that ran it crashed, each time"))
        else:
            self._source.starts.note_running(polled.records)
        self._take(polled)
        if self._wait_for_all():
            for partition, events in counts.items():
                if self._source.epochs.get(partition) == polled.epochs.get(partition):
                    self._guard.done(partition, events)

    def _wait_for_all(self) -> bool:
        """Wait until all that was read is committed, however long that takes; whether it is."""
        done = threading.Event()
        self._inbox.put(Barrier(done))
        since = time.monotonic()
        while not done.wait(WAIT) and self._failure is None and not self._stopping.is_set():
            self._health.turn()
            if time.monotonic() - since > QUICK:  # a pause throws away what was fetched ahead
                self._source.pause(self._source.topics)
                if polled := self._source.poll(1, WAIT):
                    self._take(polled)
        return done.is_set() and self._commit(wait=True) and not self._read_again.is_set()

    def _set_ready(self) -> None:
        ready = self._source.assigned_once and self._health.outage is None
        self._metrics.set(m.READY, ready)
        if self._source.assigned_once and not self._health.ready:
            self._health.ready = True
            log.info("ready")

    def _acknowledge(self, ends: Ends) -> None:
        with self._lock:
            self._acknowledged |= ends

    def _commit(self, *, wait: bool) -> bool:
        """Commit what is acknowledged; False where `wait` and that failed."""
        with self._lock:
            acknowledged = dict(self._acknowledged)
        epochs = self._source.epochs
        # A partition that went and came back starts anew: what was acknowledged under its earlier epoch is its past.
        self._done = {p: end for p, (epoch, end) in acknowledged.items() if epochs.get(p) == epoch}
        if self._settings.exactly_once:  # the sink has committed them, in a transaction
            self._source.starts.note_committed(self._done)
            self._source.note_settled(self._done)
            return True
        return self._source.commit(self._done, wait=wait)

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
        try:
            if self._shadows is not None:
                self._shadows.close()
        finally:
            self._source.close(self._failure)
        for thread in self._threads:
            thread.join(JOIN)
        if not any(thread.is_alive() for thread in self._threads):
            for executor in self._executors:
                executor.close()

    def _run_stage(self, run: Callable[[], None]) -> None:
        """Run a stage; whatever ends it early ends the worker, in `run`."""
        try:
            run()
        except BaseException as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self._answers.put(None)
