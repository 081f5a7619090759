"""Nothing lost, nothing twice, order kept: the stages between Kafka and Kafka, over random completion orders, failures,
revocations and restarts of two workers. Pure; the fault suite does it with real ones.
"""

from __future__ import annotations

import time
from itertools import chain, zip_longest
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.consumers.batch.batcher import Batcher, Limits
from millstream.consumers.decode.decoder import BlockDecoder, EventFields
from millstream.consumers.errors import DeliveryFailed, TransactionAborted
from millstream.consumers.events import Barrier, BatchResult, FetchedBatch, MicroBatch, Rejection
from millstream.consumers.execute.batch_start import BatchStart, not_run
from millstream.consumers.execute.reorder_buffer import ReorderBuffer
from millstream.consumers.flow.assignment import Assignment
from millstream.consumers.flow.batch_window import BatchWindow
from millstream.consumers.flow.in_flight import InFlightBudget
from millstream.consumers.observability.metrics import Metrics
from millstream.consumers.records import Records
from millstream.consumers.sink.dead_letter_sink import DeadLetterOutput
from millstream.consumers.sink.result_sink import Outputs, Sink
from millstream.consumers.sink.writer import Checkpoints, Writer
from millstream.consumers.source.offset_order import OffsetOrderCheck
from millstream.schemas.dead_letters import DeadLetterEncoder, decode_dead_letter
from tests.consumers.in_memory import MODELS, SIGNATURE, MemoryRecord, NumberDecoder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.consumers.events import Epochs, NextOffsets, ResultQueue
    from millstream.consumers.execute.batch_start import Work
    from millstream.consumers.execute.reorder_buffer import Ordering
    from millstream.consumers.record_headers import HeaderRows
    from millstream.consumers.record_types import Partition, Record

FOREVER = 1e6  # seconds
CONTENT = {
    "e": b"1",
    "b": b"2",
    "r": b"not a number",
    "t": None,
}  # event, event that the model rejects, refused, tombstone
BAD = 2.0


class IdRows:
    """A prediction is its event's id, `<topic>-<partition>-<offset>`."""

    def encode(self, event_ids: Sequence[str], *_: Any, **_models: Any) -> list[bytes]:
        return [event_id.encode() for event_id in event_ids]


OUTPUTS = Outputs(
    variant="primary",
    predictions=IdRows(),
    prediction_topic="out",
    dead_letters=DeadLetterOutput(
        pipeline="p", topic="dead", encoder=DeadLetterEncoder(1), max_bytes=1 << 20, skip=frozenset(), file="p.yaml"
    ),
    prediction_bytes=1 << 20,
    carry_headers=frozenset(),
)


class Kafka:
    """The topics as their readers see them, the committed offsets, and who owns which partition."""

    def __init__(self, kinds: Sequence[str]) -> None:
        self.records = {(("in", "more")[number % 2], number // 2): text for number, text in enumerate(kinds)}
        self.committed: dict[Partition, int] = dict.fromkeys(self.records, 0)
        self.owner: dict[Partition, Member] = {}
        self.results: list[tuple[str, Partition, int]] = []  # topic, and of which record

    def commit(self, member: Member, offsets: dict[Partition, int]) -> None:
        """What a member commits of partitions that are not its own is refused, as the group's coordinator does."""
        for partition, offset in offsets.items():
            if self.owner.get(partition) is member:
                assert offset >= self.committed[partition], "a commit went back"
                self.committed[partition] = offset
        self.check_committed()

    def check_committed(self) -> None:
        """No committed offset is above a missing result."""
        there = {(partition, offset) for _, partition, offset in self.results}
        for partition, committed in self.committed.items():
            for offset, kind in enumerate(self.records[partition][:committed]):
                assert kind == "t" or (partition, offset) in there, f"{partition}@{offset} is lost"


class MemoryDelivery:
    """Writes to `Kafka`: at once, or all of a transaction at its commit."""

    def __init__(self, kafka: Kafka, member: Member, *, exactly_once: bool) -> None:
        self._kafka = kafka
        self._member = member
        self.publishes_at_checkpoint = exactly_once
        self._pending: list[tuple[str, Partition, int]] = []
        self.fails = False  # the next checkpoint

    def start(self) -> None: ...
    def push(self) -> None: ...

    def produce(self, topic: str, value: bytes, _key: bytes | None, _headers: Any) -> None:
        if topic == "dead":
            letter = decode_dead_letter(value)
            place, offset = (letter.topic, letter.partition), letter.offset
        else:
            name, number, at = value.decode().split("-")
            place, offset = (name, int(number)), int(at)
        self._pending.append((topic, place, offset))
        if not self.publishes_at_checkpoint:
            self._publish()

    def produce_all(
        self,
        topic: str,
        values: Sequence[bytes],
        keys: Sequence[bytes | None],
        headers: HeaderRows | None = None,  # noqa: ARG002
    ) -> None:
        for value, key in zip(values, keys, strict=True):
            self.produce(topic, value, key, None)

    def checkpoint(self, ends: NextOffsets) -> None:
        failing, self.fails = self.fails, False
        if not self.publishes_at_checkpoint:
            if failing:
                raise DeliveryFailed("the broker refuses")
            return
        gone = [p for p, (epoch, _) in ends.items() if self._member.epochs.get(p) != epoch]
        fenced = [p for p in ends if self._kafka.owner.get(p) is not self._member]
        if failing or gone or fenced:
            raise TransactionAborted("the broker says so")
        self._publish()
        self._kafka.commit(self._member, {partition: end for partition, (_, end) in ends.items()})

    def abort(self) -> None:
        self._pending = []

    def _publish(self) -> None:
        self._kafka.results += self._pending
        self._pending = []


class Member:
    """A worker without its threads: each step is asked for."""

    def __init__(self, kafka: Kafka, *, exactly_once: bool, ordering: Ordering) -> None:
        self._kafka = kafka
        self._exactly_once = exactly_once
        self.assignment = Assignment()
        self._positions: dict[Partition, int] = {}
        self._begins: dict[Partition, int] = {}
        fields = EventFields(None, None)
        self._decoder = BlockDecoder(NumberDecoder(), fields, SIGNATURE, allow_nan=False)
        self._order = OffsetOrderCheck(self._begins)
        self._batcher = Batcher(Limits(2, 1 << 20, 0.0))
        self._by_key = ordering == "key"
        self._flying: ReorderBuffer[BatchResult] = ReorderBuffer(ordering)
        self._departed = 0
        self._starts = BatchStart(
            max_events=2, admit=self.assignment.admit, is_outdated=self.assignment.is_outdated, metrics=Metrics("p")
        )
        self._waiting: list[tuple[int, MicroBatch]] = []  # for a slot
        self._taken: list[tuple[int, MicroBatch]] = []  # by slots, whose threads have not started them yet
        self._out: list[tuple[int, MicroBatch, Work | None]] = []  # in the model
        self._answers: ResultQueue = SimpleQueue()
        self.delivery = MemoryDelivery(kafka, self, exactly_once=exactly_once)
        self._writer = Writer(
            self._answers,
            sink=Sink(self.delivery, OUTPUTS, assignment=self.assignment, metrics=Metrics("p")),
            budget=InFlightBudget(1 << 30, 1 << 40),
            assignment=self.assignment,
            checkpoints=Checkpoints(FOREVER, 5 / (1 << 30), exactly_once, 0.0),
            window=BatchWindow(0.0),
        )

    @property
    def epochs(self) -> Epochs:
        return self.assignment.epochs

    def assign(self, partition: Partition) -> None:
        """Take a partition, from its committed offset on."""
        self._kafka.owner[partition] = self
        self._begin([partition])

    def _begin(self, partitions: Sequence[Partition]) -> None:
        for partition in partitions:
            self._positions[partition] = self._begins[partition] = self._kafka.committed[partition]
        self.assignment.add(partitions)

    def hand_over(self, partition: Partition, order: int, *, finish: bool) -> None:
        """Give a partition up. The time may end before all that has started is finished.

        Slots take some batches first, and start one of them. Others start meanwhile.
        """
        for _ in range(order % 4):
            self.take()
        self.start(order)
        left = self.assignment.leave([partition])
        for _ in range(order % 3):
            self.take()
            self.start(0)
        while finish and not left.is_set():
            self.start(order)
            self.answer(order)
            self.checkpoint()
        self.assignment.remove([partition])

    def revoke(self, partition: Partition) -> None:
        """Give a partition up at once."""
        self.assignment.remove([partition])

    def read(self, most: int) -> None:
        """Read some of each partition, in turn, and send full micro-batches to the model."""
        taken: list[list[Record]] = []
        for partition in self.epochs:
            start = self._positions[partition]
            kinds = self._kafka.records[partition][start : start + most]
            taken.append([self._record(partition, start + at, kind) for at, kind in enumerate(kinds)])
            self._positions[partition] += len(kinds)
        records = [one for one in chain.from_iterable(zip_longest(*taken)) if one is not None]
        if not records:
            return
        block = self._decoder.decode(FetchedBatch(Records.of(records), self.epochs, time.monotonic(), 0))
        self._order.check(block.partitions, block.places, block.offsets, block.epochs)
        self._batcher.add(block)
        while batch := self._batcher.take(0.0):
            self._depart(batch)

    @staticmethod
    def _record(partition: Partition, offset: int, kind: str) -> Record:
        return MemoryRecord(offset, CONTENT[kind], partition, name=b"key-%d" % (offset % 3))

    def _depart(self, batch: MicroBatch) -> None:
        self._flying.submit(self._departed, batch.keys() if self._by_key else ())
        self._waiting.append((self._departed, batch))
        self._departed += 1

    def take(self) -> None:
        """A slot takes the next batch that waits."""
        if self._waiting:
            self._taken.append(self._waiting.pop(0))

    def start(self, which: int) -> None:
        """The model begins to run one of the batches that slots have taken."""
        if self._taken:
            number, whole = self._taken.pop(which % len(self._taken))
            batch = self._starts.admit(number, whole)
            self._out.append((number, batch, self._starts.begin(batch)))

    def answer(self, which: int) -> None:
        """The model answers one of the batches that it has; those whose turn it is are written."""
        if not self._out:
            self.take()
            self.start(which)
        if not self._out:
            return
        number, batch, work = self._out.pop(which % len(self._out))
        released = self._flying.complete({number: _answered(number, batch, work)})
        if self._by_key:
            for one in released:
                self._answers.put([one])
        elif released:
            self._answers.put(released)
        self._write()

    def checkpoint(self) -> None:
        """Make what is written count."""
        self._answers.put(Barrier(_Done()))
        self._write()

    def finish(self, order: int) -> None:
        """Answer all that was read."""
        while batch := self._batcher.drain():
            self._depart(batch)
        while self._out or self._taken or self._waiting:
            self.answer(order)
        self.checkpoint()

    def _write(self) -> None:
        self._answers.put(None)
        self._writer.run()
        if not self._exactly_once:
            self._kafka.commit(self, self.assignment.delivered())
        if self.assignment.rewind_wanted.is_set():
            self.assignment.rewind_wanted.clear()
            # It hears of a rebalance now, where there was one.
            self.assignment.remove([p for p in self.epochs if self._kafka.owner.get(p) is not self])
            self._begin(list(self.epochs))


class _Done:
    def set(self) -> None: ...


def _answered(number: int, batch: MicroBatch, work: Work | None) -> BatchResult:
    if work is None:
        return not_run(number, batch)
    x = work.inputs["x"]
    assert isinstance(x, np.ndarray)
    good = np.flatnonzero(x[:, 0] != BAD)
    rejected = {row: Rejection("model_rejected", "no") for row in np.flatnonzero(x[:, 0] == BAD).tolist()}
    return work.result(number, ({"y": x[good]} if len(good) else {}, good, rejected), 0.0, MODELS)


class Group:
    """Two members that share the partitions."""

    def __init__(self, kafka: Kafka, *, exactly_once: bool, ordering: Ordering) -> None:
        self._kafka = kafka
        self._exactly_once = exactly_once
        self._ordering = ordering
        self._members = [self._new(), self._new()]
        for number, partition in enumerate(kafka.records):
            self._members[number % 2].assign(partition)

    def _new(self) -> Member:
        return Member(self._kafka, exactly_once=self._exactly_once, ordering=self._ordering)

    def step(self, kind: str, who: int, number: int) -> None:
        """Something happens to a member; one that fails for good is replaced."""
        member = self._members[who]
        try:
            self._happen(member, kind, who, number)
        except DeliveryFailed:
            self._restart(who)
        self._kafka.check_committed()

    def _happen(self, member: Member, kind: str, who: int, number: int) -> None:
        match kind:
            case "read":
                member.read(number)
            case "take":
                member.take()
            case "start":
                member.start(number)
            case "answer":
                member.answer(number)
            case "checkpoint":
                member.checkpoint()
            case "fail":
                member.delivery.fails = True
            case "restart":
                self._restart(who)
            case _:
                partition = list(self._kafka.records)[number % len(self._kafka.records)]
                if self._kafka.owner[partition] is member:
                    self._move(member, kind, partition, number)
                    self._members[who if kind == "hand over and get back" else 1 - who].assign(partition)

    @staticmethod
    def _move(member: Member, kind: str, partition: Partition, number: int) -> None:
        match kind:
            case "hand over and move" | "hand over and get back":
                member.hand_over(partition, number, finish=True)
            case "run out of time and move":
                member.hand_over(partition, number, finish=False)
            case "drop and move":
                member.revoke(partition)

    def _restart(self, who: int) -> None:
        before, self._members[who] = self._members[who], self._new()
        for partition, owner in list(self._kafka.owner.items()):
            if owner is before:
                self._members[who].assign(partition)

    def finish(self) -> None:
        """Nothing happens any more: all is read, answered and committed."""
        for _ in range(6):  # each member may find out about what happened before, and then reads again
            for who, member in enumerate(self._members):
                try:
                    member.read(1000)
                    member.finish(2)
                except DeliveryFailed:
                    self._restart(who)
        ends = {partition: len(kinds) for partition, kinds in self._kafka.records.items()}
        assert self._kafka.committed == ends


Steps = list[tuple[str, int, int]]
KINDS = st.lists(st.text("eeeebrt", min_size=6, max_size=24), min_size=1, max_size=3)
ORDERINGS = st.sampled_from(["partition", "key", "none"])
USUAL = ["read", "read", "take", "take", "start", "start", "answer", "answer", "answer", "checkpoint"]
HANDED_OVER = ["hand over and move", "hand over and get back"]
TROUBLE = ["fail", "run out of time and move", "drop and move", "move unheard", "restart"]


def steps_of(kinds: list[str]) -> st.SearchStrategy[Steps]:
    return st.lists(st.tuples(st.sampled_from(kinds), st.integers(0, 1), st.integers(0, 7)), min_size=10, max_size=40)


STEPS = steps_of([*USUAL, *HANDED_OVER, *TROUBLE])


def happened(kinds: list[str], steps: Steps, *, exactly_once: bool, ordering: Ordering) -> Kafka:
    kafka = Kafka(kinds)
    group = Group(kafka, exactly_once=exactly_once, ordering=ordering)
    for step in steps:
        group.step(*step)
    group.finish()
    return kafka


def wanted(kafka: Kafka) -> list[tuple[str, Partition, int]]:
    topics = {"e": "out", "b": "dead", "r": "dead"}
    return sorted(
        (topics[kind], partition, offset)
        for partition, kinds in kafka.records.items()
        for offset, kind in enumerate(kinds)
        if kind != "t"
    )


@settings(max_examples=150)
@given(KINDS, STEPS)
def test_exactly_once_each_event_has_one_result_and_a_partition_its_order(kinds: list[str], steps: Steps) -> None:
    kafka = happened(kinds, steps, exactly_once=True, ordering="partition")
    assert sorted(kafka.results) == wanted(kafka)
    for partition in kafka.records:
        offsets = [offset for topic, of, offset in kafka.results if (topic, of) == ("out", partition)]
        assert offsets == sorted(offsets)


@settings(max_examples=150)
@given(KINDS, STEPS, ORDERINGS)
def test_at_least_once_each_event_has_a_result_and_none_another(
    kinds: list[str], steps: Steps, ordering: Ordering
) -> None:
    kafka = happened(kinds, steps, exactly_once=False, ordering=ordering)
    assert sorted(set(kafka.results)) == wanted(kafka)


@settings(max_examples=150)
@given(KINDS, steps_of([*USUAL, *HANDED_OVER]), ORDERINGS)
def test_at_least_once_nothing_is_done_twice_if_partitions_move_in_time(
    kinds: list[str], steps: Steps, ordering: Ordering
) -> None:
    kafka = happened(kinds, steps, exactly_once=False, ordering=ordering)
    assert sorted(kafka.results) == wanted(kafka)
