"""The computing stage: gather polls, decode them to columns, batch, and run the model. One thread."""

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import TypeVar

import numpy as np

from consumers import metrics as m
from consumers.batcher import Batcher, Limits
from consumers.decoder import BlockDecoder
from consumers.errors import Abandoned
from consumers.events import Answered, Barrier, MicroBatch, Polled
from consumers.poison import run_isolating
from inference.errors import ExecutorUnavailable
from inference.executors.interface import Executor
from schemas.errors import SchemaUnavailable

log = logging.getLogger(__name__)

T = TypeVar("T")

DECODE_RECORDS = 4096  # most records decoded at once: beyond that a block is no cheaper per record
BACK_OFF = (0.1, 10.0)  # seconds: the first wait for something that is away, and the longest


class Compute:
    """Takes polls from `inbox`, gives answered micro-batches to `answers`, in arrival order.

    A barrier is passed on when all that came before it is answered; None ends the stage and is passed on too.
    """

    def __init__(
        self,
        inbox: "SimpleQueue[Polled | Barrier | None]",
        answers: "SimpleQueue[Answered | Barrier | None]",
        *,
        decoder: BlockDecoder,
        limits: Limits,
        executor: Executor,
        abandon: threading.Event,
        metrics: m.Metrics,
    ) -> None:
        self._inbox = inbox
        self._answers = answers
        self._decoder = decoder
        self._limits = limits
        self._batcher = Batcher(limits)
        self._executor = executor
        self._abandon = abandon
        self._metrics = metrics
        self._gathered: list[Polled] = []
        self._records = 0  # in `_gathered`

    def run(self) -> None:
        """Work until the inbox gives None.

        Raises:
            Abandoned: told to give up while the executor or the schemas were away.
        """
        while True:
            control = self._gather()
            self._decode()
            while batch := self._batcher.take(time.monotonic()):
                self._answer(batch)
            if control is not None:
                while batch := self._batcher.drain():
                    self._answer(batch)
                self._answers.put(control.barrier)
                if control.barrier is None:
                    return

    def _gather(self) -> "Control | None":
        """Collect polls until there is enough for a micro-batch, the oldest has waited long enough, or control comes.

        Decoding waits for as long as batching does: one block of many records is cheaper than many blocks of one.
        """
        while self._records < DECODE_RECORDS:
            enough = self._records >= self._limits.max_events
            try:
                message = self._inbox.get(timeout=0 if enough else self._patience())
            except Empty:
                return None
            if not isinstance(message, Polled):
                return Control(message)
            self._gathered.append(message)
            self._records += len(message.records)
        return None

    def _patience(self) -> float | None:
        """Seconds until the oldest event has waited long enough; None where nothing waits."""
        due = self._batcher.due()
        if due is None and self._gathered:
            due = self._gathered[0].arrived + self._limits.max_wait
        return None if due is None else max(due - time.monotonic(), 0.0)

    def _decode(self) -> None:
        gathered, self._gathered, self._records = self._gathered, [], 0
        for polled in _joined(gathered):
            started = time.perf_counter()
            self._batcher.add(self._patiently("schemas", lambda polled=polled: self._decoder.decode(polled)))  # type: ignore[misc]
            self._metrics.observe(m.STAGE_SECONDS, time.perf_counter() - started, "decode")

    def _answer(self, batch: MicroBatch) -> None:
        if self._abandon.is_set():
            raise Abandoned(f"{batch.events} events and more were not run in time")
        self._metrics.count(m.BATCHES, 1, batch.reason)
        self._metrics.observe(m.STAGE_SECONDS, time.monotonic() - batch.arrived, "queue")
        if not batch.events:
            self._answers.put(Answered(batch, {}, np.empty(0, np.int64), {}, time.time_ns() // 1_000_000))
            return
        self._metrics.observe(m.BATCH_EVENTS, batch.events)
        self._metrics.observe(m.BATCH_FILL, batch.events / self._limits.max_events)
        started = time.perf_counter()
        tensors = batch.tensors()
        outputs, rows, rejected = self._patiently("executor", lambda: run_isolating(self._executor.run, tensors))
        self._metrics.observe(m.STAGE_SECONDS, time.perf_counter() - started, "infer")
        self._answers.put(Answered(batch, outputs, rows, rejected, time.time_ns() // 1_000_000))

    def _patiently(self, what: str, call: Callable[[], T]) -> T:
        """Call until what it needs is there: an outage makes lag, and nothing else."""
        wait, longest = BACK_OFF
        while True:
            try:
                return call()
            except (ExecutorUnavailable, SchemaUnavailable) as error:
                self._metrics.count(m.RETRIES, 1, what)
                log.warning("%s; trying again in up to %.1f s", error, wait)
                # Jitter, so that workers that lost the same thing don't come back to it at the same moment.
                if self._abandon.wait(random.uniform(wait / 2, wait)):
                    raise Abandoned(f"gave up waiting: {error}") from error
                wait = min(wait * 2, longest)


class Control:
    """A message that is no poll: a barrier, or None, the end."""

    def __init__(self, barrier: Barrier | None) -> None:
        self.barrier = barrier


def _joined(polls: list[Polled]) -> Iterator[Polled]:
    """Polls read under the same assignment as one."""
    start = 0
    for at in range(1, len(polls) + 1):
        if at == len(polls) or polls[at].epochs is not polls[start].epochs:
            same = polls[start:at]
            records = same[0].records if len(same) == 1 else [record for polled in same for record in polled.records]
            yield Polled(records, same[0].epochs, same[0].arrived, same[0].ingest_time)
            start = at
