"""The compute thread: gathers polls, decodes them into columns, cuts these into batches, and has the model run them."""

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, groupby
from queue import Empty, SimpleQueue

from millstream.consumers.batch.batcher import Batcher
from millstream.consumers.decode.isolating_decoder import IsolatingDecoder
from millstream.consumers.errors import OffsetsRewound
from millstream.consumers.events import Barrier, DecodedBatch, FetchedBatch, MicroBatch, ResultQueue
from millstream.consumers.execute.interface import Pool
from millstream.consumers.flow.in_flight import TopicQuotas
from millstream.consumers.observability import metrics as m
from millstream.consumers.records import Records
from millstream.consumers.source.offset_order import OffsetOrderCheck

# Most records per poll and per decoding. With 4,096, a record takes up to 5 % more CPU. More than this takes more memory: with
# 8,192 and small events, 10 MiB more than with 4,096.
DECODE_RECORDS = 6144


class Compute:
    """Takes polls from `inbox` and gives the results of micro-batches to `answers`.

    A barrier is passed on once all events before it have results. None ends the stage, and is passed on too. If the client
    delivers records twice, an `OffsetsRewound` goes to `answers` first: the results after it must not be written.
    """

    def __init__(
        self,
        inbox: "SimpleQueue[FetchedBatch | Barrier | None]",
        answers: ResultQueue,
        *,
        decoder: IsolatingDecoder,
        batcher: Batcher,
        order: OffsetOrderCheck,
        pool: Pool,
        metrics: m.Metrics,
        quotas: TopicQuotas | None = None,
    ) -> None:
        """Args:
        inbox: the polls.
        answers: takes results and barriers.
        decoder: turns records into columns.
        batcher: cuts micro-batches.
        order: finds records that were delivered twice.
        pool: runs micro-batches.
        metrics: where to count.
        quotas: count the waiting records of each topic; None if the topics have no weights.
        """
        self._inbox = inbox
        self._answers = answers
        self._decoder = decoder
        self._batcher = batcher
        self._quotas = quotas
        self._order = order
        self._pool = pool
        self._metrics = metrics
        self._gathered: list[FetchedBatch] = []
        self._records = 0  # in `_gathered`

    def run(self) -> None:
        """Work until the inbox gives None.

        Raises:
            Abandoned: the worker ends while the executor or the schemas are away.
            ReadBelowCommitted: the client delivered records below the committed offset.
        """
        try:
            while self._turn():
                pass
        finally:
            self._pool.close()

    def _turn(self) -> bool:
        """Process the polls that have come. Returns False at the end."""
        control = self._gather()
        self._decode()
        while batch := self._batcher.take(time.monotonic(), self._pool.together):
            self._dispatch(batch)
        self._pool.flush()
        if control is None:
            return True
        while batch := self._batcher.drain():
            self._dispatch(batch)
        self._pool.settle()
        self._answers.put(control.barrier)
        return control.barrier is not None

    def _dispatch(self, batch: MicroBatch) -> None:
        if self._quotas is not None:
            for part in batch.parts:
                self._quotas.remove(part.block.partition(0)[0], part.stop - part.start)
        self._pool.submit(batch)

    def _gather(self) -> "Control | None":
        """Collect polls until a micro-batch is full, the oldest event has waited long enough, or another message comes.

        While all executors are busy, a batch that is not full waits for more events: closed now, it would not run any sooner.
        Records are decoded only then: one block of many records is cheaper than many blocks of one.
        """
        while self._records < DECODE_RECORDS:
            enough = self._records >= self._batcher.max_events
            try:
                message = self._inbox.get(timeout=0 if enough else self._due_in())
            except Empty:
                if not enough and (self._pool.wait_for_one() or self._due_in()):
                    continue  # look once more: records that came meanwhile join the batch
                return None
            if not isinstance(message, FetchedBatch):
                return Control(message)
            self._gathered.append(message)
            self._records += len(message.records)
        return None

    def _due_in(self) -> float | None:
        """Seconds until the oldest event has waited long enough; None if no event waits."""
        due = self._batcher.due(self._gathered[0].arrived if self._gathered else None)
        return None if due is None else max(due - time.monotonic(), 0.0)

    def _decode(self) -> None:
        gathered, self._gathered, self._records = self._gathered, [], 0
        joined = _joined(gathered)
        for polled in joined if self._quotas is None else chain.from_iterable(map(_by_topic, joined)):
            started = time.perf_counter()
            for block in self._decoder.blocks(polled):
                self._add(block)
            self._metrics.observe(m.STAGE_SECONDS, time.perf_counter() - started, "decode")

    def _add(self, block: DecodedBatch) -> None:
        try:
            self._order.check(block.partitions, block.places, block.offsets, block.epochs)
        except OffsetsRewound as back:
            self._answers.put(back)
        if block.invalid_deadlines:
            self._metrics.count(m.INVALID_DEADLINES, block.invalid_deadlines)
        self._batcher.add(block)


class Control:
    """A message other than a poll: a barrier, or None for the end."""

    def __init__(self, barrier: Barrier | None) -> None:
        self.barrier = barrier


def _joined(polls: list[FetchedBatch]) -> Iterator[FetchedBatch]:
    """Join consecutive polls of the same assignment."""
    for _, group in groupby(polls, lambda polled: (id(polled.epochs), id(polled.rejection))):
        first, *others = group
        if not others:
            yield first
            continue
        yield replace(first, records=Records.concat([polled.records for polled in (first, *others)]))


def _by_topic(polled: FetchedBatch) -> Iterator[FetchedBatch]:
    """Split a poll by topic."""
    records = polled.records
    for topic in dict.fromkeys(topic for topic, _ in records.partitions):
        yield replace(polled, records=records.where(lambda partition, topic=topic: partition[0] == topic))  # type: ignore[misc]
