"""A worker with a bug and a fault: `buggy_worker.py BUG FAULT TIME work PIPELINE ...`. It shows that the checker finds bugs.

Each fault has a place in the code. It strikes once, when the worker reaches this place for the TIMEth time. Bugs and faults
replace public methods, parts that `build` connects, and Kafka's clients.
"""

from __future__ import annotations

import os
import signal
import sys
import uuid
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from millstream.consumers.cli import main as cli
from millstream.consumers.sink import delivery, transactions
from millstream.consumers.sink.delivery import AtLeastOnce
from millstream.consumers.sink.transactions import ExactlyOnce
from millstream.consumers.source import kafka_source
from millstream.consumers.source.kafka_source import Source
from millstream.consumers.source.offset_order import OffsetOrderCheck
from millstream.consumers.worker import build
from millstream.inference.executors.onnx import OnnxExecutor
from tests.consumers.in_memory import GivenAssignment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.consumers.events import FetchedBatch, NextOffsets
    from millstream.consumers.flow.assignment import Assignment
    from millstream.consumers.record_headers import HeaderRows
    from millstream.consumers.source.kafka_source import Subscription


WENT_BACK = "the client goes back"
replace = pytest.MonkeyPatch().setattr  # for as long as the process lives


def offsets_first() -> None:
    """Commits offsets in a separate transaction before the results. A crash in between loses events."""
    produce, commit = ExactlyOnce.produce, ExactlyOnce.checkpoint
    later: list[Any] = []

    def checkpoint(self: ExactlyOnce, ends: NextOffsets) -> None:
        if ends:
            commit(self, ends)
            while later:
                produce(self, *later.pop(0))
            commit(self, {})

    replace(ExactlyOnce, "produce", lambda _, *record: later.append(record))
    replace(ExactlyOnce, "checkpoint", checkpoint)


def commits_what_it_should_abort() -> None:
    """Commits the results that should be aborted, so they are written again."""
    abort = ExactlyOnce.abort

    def commit(self: ExactlyOnce) -> None:
        self.checkpoint({})
        abort(self)  # no transaction is open any more

    replace(ExactlyOnce, "abort", commit)


def never_reads_again() -> None:
    """After an abort, continues without reading the aborted events again, so they are lost."""

    class NeverRewound(Source):
        """Give the partitions a new epoch, but don't seek back: their records aren't read again."""

        def __init__(self, client: Any, subscription: Subscription, *, assignment: Assignment, **others: Any) -> None:
            super().__init__(client, subscription, assignment=assignment, **others)
            self.assignment = assignment

        def rewind(self) -> bool:
            self.assignment.renew()
            return True

    replace(build, "Source", NeverRewound)


def unfenced() -> None:
    """Uses new IDs, so that neither the transactions nor the group fence it. Results of a worker that was declared dead count."""
    # Its transaction must not time out before the worker wakes, or the broker itself would undo the bug.
    transactions.EXACTLY_ONCE["transaction.timeout.ms"] = 300_000

    class Unfenced(ExactlyOnce):
        """Has an ID that no producer had before, and its own assignment, which still has every partition."""

        def __init__(self, client: Any, *, transactional_id: str, **others: Any) -> None:
            group = transactional_id.removesuffix("-w0")
            consumer = Consumer({"bootstrap.servers": client["bootstrap.servers"], "group.id": group})
            self.assignment = GivenAssignment({})
            # The offsets name no member, so the broker doesn't check the membership.
            self.assignment.group_metadata = consumer.consumer_group_metadata()
            others |= {"transactional_id": uuid.uuid4().hex, "assignment": self.assignment}
            super().__init__(client, **others)

        def checkpoint(self, ends: NextOffsets) -> None:
            self.assignment.given = {partition: epoch for partition, (epoch, _) in ends.items()}
            super().checkpoint(ends)

    replace(build, "ExactlyOnce", Unfenced)


def newest_first() -> None:
    """Writes the results of each transaction from the last to the first."""
    produce, commit = ExactlyOnce.produce, ExactlyOnce.checkpoint
    later: list[Any] = []

    def checkpoint(self: ExactlyOnce, ends: NextOffsets) -> None:
        while later:
            produce(self, *later.pop())
        commit(self, ends)

    replace(ExactlyOnce, "produce", lambda _, *record: later.append(record))
    replace(ExactlyOnce, "checkpoint", checkpoint)


def acknowledges_early() -> None:
    """At least once: commits offsets while their results still wait in the client."""
    delivery.PRODUCER_DEFAULTS["linger.ms"] = 60_000
    replace(AtLeastOnce, "push", lambda self: None)  # noqa: ARG005
    replace(AtLeastOnce, "checkpoint", lambda self, ends: None)  # noqa: ARG005


def believes_the_client() -> None:
    """If the client delivers records twice, gives them two results."""
    replace(OffsetOrderCheck, "check", lambda *_: None)


def none() -> None:
    """No bug: shows that a fault alone does no harm."""


def _one_by_one(
    self: ExactlyOnce,
    topic: str,
    values: Sequence[bytes],
    keys: Sequence[bytes | None],
    headers: HeaderRows | None = None,
) -> None:
    """Write records with `produce`, which bugs and faults replace."""
    for value, key, own in zip(values, keys, headers or [None] * len(values), strict=True):
        self.produce(topic, value, key, own)


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
"""Fault -> the place where it strikes, and what it does."""


class StruckProducer(Producer):
    """Kafka's client. The fault may strike at each step of a transaction."""

    def __init__(self, at: Callable[[str], None], *settings: Any, **others: Any) -> None:
        super().__init__(*settings, **others)
        self.at = at
        self.with_results = False  # whether the transaction has results; a bug may commit offsets alone

    def produce(self, *record: Any, **others: Any) -> None:
        super().produce(*record, **others)
        self.with_results = True
        self.at("after produce")

    def send_offsets_to_transaction(self, *offsets: Any) -> None:
        self.at("before send_offsets")
        super().send_offsets_to_transaction(*offsets)

    def commit_transaction(self, *timeout: float) -> None:
        if self.with_results:
            self.at("before commit")
        super().commit_transaction(*timeout)
        self.with_results = False
        self.at("after commit")


def arm(fault: str, time: int) -> None:
    """Let the fault strike when the worker reaches its place for the `time`th time."""
    where, strike = FAULTS[fault]
    times, run = count(1), OnnxExecutor.run

    def at(place: str) -> None:
        if place == where and next(times) == time:
            strike()

    def striking_run(self: OnnxExecutor, *inputs: Any) -> Any:
        at("in the model")
        return run(self, *inputs)

    replace(delivery, "Producer", partial(StruckProducer, at))
    replace(OnnxExecutor, "run", striking_run)


def abort_at(checkpoint: int) -> None:
    """Pretend at this checkpoint that the partitions were revoked."""
    numbers, commit = count(1), ExactlyOnce.checkpoint

    def aborting(self: ExactlyOnce, ends: NextOffsets) -> None:
        gone = bool(ends) and next(numbers) == checkpoint
        commit(self, {partition: (-1, offset) for partition, (_, offset) in ends.items()} if gone else ends)

    replace(ExactlyOnce, "checkpoint", aborting)


def go_back_at(poll: int) -> None:
    """Let the client deliver the records of this poll again."""
    numbers, read = count(1), Source.poll
    clients: list[Consumer] = []

    def made(*settings: Any, **others: Any) -> Consumer:
        clients.append(Consumer(*settings, **others))
        return clients[-1]

    def going_back(self: Source, *limits: Any) -> FetchedBatch | None:
        polled = read(self, *limits)
        if polled is not None and next(numbers) == poll:
            (place, first), *_ = polled.records.firsts().items()
            clients[-1].seek(TopicPartition(*place, first))
            print(WENT_BACK, file=sys.stderr, flush=True)
        return polled

    replace(kafka_source, "Consumer", made)
    replace(Source, "poll", going_back)


if __name__ == "__main__":
    bug, fault, time, *arguments = sys.argv[1:]
    replace(ExactlyOnce, "produce_all", _one_by_one)
    BUGS[bug]()
    if fault == "abort":
        abort_at(int(time))
    elif fault == "go_back":
        go_back_at(int(time))
    else:
        arm(fault, int(time))
    sys.exit(cli.run(arguments))
