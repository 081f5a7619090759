"""A worker with a bug and a fault: `buggy_worker.py BUG FAULT TIME work PIPELINE ...`. It shows that the checker sees bugs.

The fault strikes once, at the place that it names, the time with this number that the worker comes there.
"""

from __future__ import annotations

import os
import signal
import sys
import uuid
from itertools import count
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, TopicPartition

from millstream.consumers.cli import main as cli
from millstream.consumers.sink import delivery, transactions
from millstream.consumers.sink.delivery import AtLeastOnce
from millstream.consumers.sink.transactions import ExactlyOnce
from millstream.consumers.source.kafka_source import Source
from millstream.consumers.source.offset_order import OffsetOrderCheck
from millstream.inference.executors.onnx import OnnxExecutor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.consumers.events import FetchedBatch, NextOffsets
    from millstream.consumers.record_types import HeaderColumns


WENT_BACK = "the client goes back"


def offsets_first() -> None:
    """Offsets in a transaction of their own, and the results after it: a crash between them loses events."""
    produce = ExactlyOnce.produce
    later: list[Any] = []

    def checkpoint(self: ExactlyOnce, ends: NextOffsets) -> None:
        if ends:
            _commit(self, ends, self._assignment.group_metadata, "commit_offsets")
            while later:
                produce(self, *later.pop(0))
            self._begin()
            self._step("commit", self._producer.commit_transaction)
            self._open = False

    ExactlyOnce.produce = lambda _, *record: later.append(record)  # type: ignore[method-assign]
    ExactlyOnce.checkpoint = checkpoint  # type: ignore[method-assign]


def commits_what_it_should_abort() -> None:
    """Results of an aborted transaction stay, and are written again."""

    def abort(self: ExactlyOnce) -> None:
        self._step("abort", self._producer.commit_transaction)
        self._open = False

    ExactlyOnce.abort = abort  # type: ignore[method-assign]


def never_reads_again() -> None:
    """After an abort it goes on where it was, and what was aborted is lost."""

    def rewind(self: Source, *_: object) -> bool:
        self._assignment.renew()
        return True

    Source.rewind = rewind  # type: ignore[method-assign]


def unfenced() -> None:
    """Neither the producer nor the group know it again: what it held when it was taken for dead counts nevertheless."""
    begin = ExactlyOnce.__init__
    # Its transaction must not time out before it is woken, or the broker itself would undo the bug.
    transactions.EXACTLY_ONCE["transaction.timeout.ms"] = 300_000

    def init(self: ExactlyOnce, client: Any, **others: Any) -> None:
        begin(self, client, **others | {"transactional_id": uuid.uuid4().hex})
        group = others["transactional_id"].removesuffix("-w0")
        consumer = Consumer({"bootstrap.servers": client["bootstrap.servers"], "group.id": group})
        stranger = consumer.consumer_group_metadata()  # of no member, so the broker asks nothing

        def checkpoint(self: ExactlyOnce, ends: NextOffsets) -> None:
            if ends:
                _commit(self, ends, stranger, "commit")

        ExactlyOnce.checkpoint = checkpoint  # type: ignore[method-assign]

    ExactlyOnce.__init__ = init  # type: ignore[method-assign]


def newest_first() -> None:
    """The results of each transaction are written from the last to the first."""
    produce, commit = ExactlyOnce.produce, ExactlyOnce.checkpoint
    later: list[Any] = []

    def checkpoint(self: ExactlyOnce, ends: NextOffsets) -> None:
        while later:
            produce(self, *later.pop())
        commit(self, ends)

    ExactlyOnce.produce = lambda _, *record: later.append(record)  # type: ignore[method-assign]
    ExactlyOnce.checkpoint = checkpoint  # type: ignore[method-assign]


def acknowledges_early() -> None:
    """At least once: offsets are committed while their results still wait in the client."""
    delivery.DEFAULTS["linger.ms"] = 60_000
    AtLeastOnce.push = lambda self: None  # type: ignore[method-assign]  # noqa: ARG005
    AtLeastOnce.checkpoint = lambda self, ends: None  # type: ignore[method-assign]  # noqa: ARG005


def believes_the_client() -> None:
    """What the client gives again is answered again."""
    OffsetOrderCheck.check = lambda *_: None  # type: ignore[method-assign]


def none() -> None:
    """No bug: what a fault alone must not do."""


def _commit(self: ExactlyOnce, ends: NextOffsets, group: Any, name: str) -> None:
    """Commit offsets and what is in the open transaction, whoever has the partitions by now."""
    offsets = [TopicPartition(*partition, offset) for partition, (_, offset) in ends.items()]
    self._begin()
    self._step("send_offsets", lambda: self._producer.send_offsets_to_transaction(offsets, group))
    self._step(name, self._producer.commit_transaction)
    self._open = False


def _one_by_one(
    self: ExactlyOnce, topic: str, values: Sequence[bytes], keys: Sequence[bytes | None], headers: HeaderColumns = ()
) -> None:
    """Hand records over by `produce`, where bugs and faults are."""
    for row, (value, key) in enumerate(zip(values, keys, strict=True)):
        self.produce(topic, value, key, [(name, column[row]) for name, column in headers])


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _sleep() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


BUGS = {
    bug.__name__: bug
    for bug in (
        offsets_first,
        commits_what_it_should_abort,
        never_reads_again,
        unfenced,
        newest_first,
        acknowledges_early,
        believes_the_client,
        none,
    )
}
FAULTS: dict[str, tuple[str, Callable[[], None]]] = {
    "die": ("before commit", _die),
    "die_in_the_model": ("in the model", _die),
    "die_while_producing": ("after produce", _die),
    "die_before_the_offsets": ("before send_offsets", _die),
    "die_after_the_commit": ("after commit", _die),
    "sleep": ("before send_offsets", _sleep),
    "sleep_while_producing": ("after produce", _sleep),
    "none": ("", lambda: None),
}
"""Fault -> where it strikes, and what it does."""


def arm(fault: str, time: int) -> None:
    """Let the fault strike when the worker comes to its place for this time."""
    where, strike = FAULTS[fault]
    times, step, produce, run = count(1), ExactlyOnce._step, ExactlyOnce.produce, OnnxExecutor.run

    def at(place: str) -> None:
        if place == where and next(times) == time:
            strike()

    def striking_step(self: ExactlyOnce, name: str, call: Callable[[], object]) -> None:
        at(f"before {name}")
        step(self, name, call)
        at(f"after {name}")

    def striking_produce(self: ExactlyOnce, *record: Any) -> None:
        produce(self, *record)
        at("after produce")

    def striking_run(self: OnnxExecutor, *inputs: Any) -> Any:
        at("in the model")
        return run(self, *inputs)

    ExactlyOnce._step = striking_step  # type: ignore[method-assign]
    ExactlyOnce.produce = striking_produce  # type: ignore[method-assign,assignment]
    OnnxExecutor.run = striking_run  # type: ignore[method-assign,assignment]


def abort_at(checkpoint: int) -> None:
    """Let the partitions seem to have gone at this checkpoint."""
    numbers, commit = count(1), ExactlyOnce.checkpoint

    def aborting(self: ExactlyOnce, ends: NextOffsets) -> None:
        gone = bool(ends) and next(numbers) == checkpoint
        commit(self, {partition: (-1, offset) for partition, (_, offset) in ends.items()} if gone else ends)

    ExactlyOnce.checkpoint = aborting  # type: ignore[method-assign]


def go_back_at(poll: int) -> None:
    """Let the client give the records of this poll again."""
    numbers, read = count(1), Source.poll

    def going_back(self: Source, *limits: Any) -> FetchedBatch | None:
        polled = read(self, *limits)
        if polled is not None and next(numbers) == poll:
            (place, first), *_ = polled.records.firsts().items()
            self._consumer.seek(TopicPartition(*place, first))
            print(WENT_BACK, file=sys.stderr, flush=True)
        return polled

    Source.poll = going_back  # type: ignore[method-assign,assignment]


if __name__ == "__main__":
    bug, fault, time, *arguments = sys.argv[1:]
    ExactlyOnce.produce_all = _one_by_one  # type: ignore[method-assign]
    BUGS[bug]()
    if fault == "abort":
        abort_at(int(time))
    elif fault == "go_back":
        go_back_at(int(time))
    else:
        arm(fault, int(time))
    sys.exit(cli.run(arguments))
