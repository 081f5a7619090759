"""Committed offsets that the broker has deleted together with their topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
from confluent_kafka import KafkaError, TopicPartition

from millstream.consumers.errors import ClusterChanged, OffsetsForgotten
from millstream.consumers.observability.health import Health
from millstream.consumers.source.deleted_offsets import ASK_INTERVAL, PAUSE, DeletedOffsets
from tests.consumers.source.fake_consumer import FakeConsumer, failure

if TYPE_CHECKING:
    from confluent_kafka import Consumer

    from millstream.consumers.record_types import Partition

A, B = ("in", 0), ("in", 1)


class Idle:
    """A worker that gets no records: A had an offset when it was assigned, B had none."""

    def __init__(self, *, exactly_once: bool = False) -> None:
        self.now = 0.0
        self.consumer = FakeConsumer({A: 10, B: 0})
        self.consumer.committed_offsets = {A: (10, "")}
        self.health = Health(60)
        self.committed: tuple[Partition, ...] = ()
        self.offsets = DeletedOffsets(
            cast("Consumer", self.consumer),
            self.health,
            "g",
            exactly_once=exactly_once,
            committed=lambda: self.committed,
            confirmed=lambda: {A: 10},
            clock=lambda: self.now,
        )
        self.offsets.assigned([TopicPartition(*A, 10), TopicPartition(*B, -1001)])

    def came(self, after: float = 0.0) -> None:
        """Records came after so many seconds."""
        self.now += after
        self.offsets.fetched([A, B])

    def look(self, *committed: Partition) -> None:
        self.now += ASK_INTERVAL
        self.committed = committed
        self.offsets.look([A, B])


def test_offset_that_is_gone_twice_in_a_row_ends_the_worker() -> None:
    idle = Idle()
    idle.look()
    del idle.consumer.committed_offsets[A]
    idle.look()
    with pytest.raises(
        ClusterChanged, match=r"the offsets of group g in in/0 are gone: .* was deleted and created anew"
    ):
        idle.look()


def test_worker_with_exactly_once_leaves_it_to_people_what_has_happened() -> None:
    idle = Idle(exactly_once=True)
    idle.consumer.committed_offsets.clear()
    idle.look()
    with pytest.raises(OffsetsForgotten, match=r"created anew .* Or the broker has lost .*runbook#offsets.* in,0,10$"):
        idle.look()


def test_offset_that_this_worker_has_committed_is_missed_too() -> None:
    idle = Idle()
    idle.look(B)
    with pytest.raises(ClusterChanged, match="in/1"):
        idle.look(B)


def test_partition_without_an_offset_is_not_missed() -> None:
    idle = Idle()
    for _ in range(5):
        idle.look()
    idle.offsets.assigned([TopicPartition(*A, -1001)])
    idle.consumer.committed_offsets.clear()
    for _ in range(5):
        idle.look()


def test_one_answer_without_an_offset_or_none_at_all_is_no_sign() -> None:
    idle = Idle()
    for _ in range(3):
        idle.consumer.committed_offsets.clear()
        idle.look()
        idle.consumer.next_failures["committed"].append(failure(KafkaError._TIMED_OUT))
        idle.look()
        idle.consumer.committed_offsets = {A: (10, "")}
        idle.look()


@pytest.mark.parametrize(("exactly_once", "error"), [(False, ClusterChanged), (True, OffsetsForgotten)])
def test_first_records_after_a_pause_are_not_taken_if_the_offset_is_gone(
    exactly_once: bool, error: type[Exception]
) -> None:
    idle = Idle(exactly_once=exactly_once)
    idle.came(PAUSE)
    idle.consumer.committed_offsets.clear()
    idle.came(0.9 * PAUSE)  # this worker is about to commit
    with pytest.raises(error, match="created anew"):
        idle.came(PAUSE)


def test_first_records_after_a_pause_are_taken_if_the_broker_does_not_answer_or_has_the_offset() -> None:
    idle = Idle()
    idle.consumer.committed_offsets.clear()
    idle.consumer.next_failures["committed"].append(failure(KafkaError._TIMED_OUT))
    idle.came(PAUSE)
    idle.consumer.committed_offsets = {A: (10, "")}
    idle.came(PAUSE)


def test_nothing_is_asked_while_records_come_or_no_broker_answers() -> None:
    idle = Idle()
    idle.came()
    idle.now += ASK_INTERVAL / 2
    idle.offsets.look([A])
    idle.health.broker_away = "away"
    idle.look()
    assert "committed" not in idle.consumer.calls
