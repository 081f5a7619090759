"""The source over a consumer in memory: what it assigns, reads, commits and reads again, and what ends it."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaError, TopicPartition

from millstream.consumers.errors import OffsetsForgotten, OffsetsPastEnd, WorkerError
from millstream.consumers.flow.assignment import Assignment
from millstream.consumers.flow.batch_window import BatchWindow
from millstream.consumers.observability import metrics as m
from millstream.consumers.observability.health import Health
from millstream.consumers.source import awaited_assignment, kafka_source, rewind
from millstream.consumers.source.crashes import CrashGuard
from millstream.consumers.source.kafka_source import Source, Subscription
from tests.consumers.clock import Clock
from tests.consumers.measured import Measured
from tests.consumers.source.fake_consumer import Event, FakeConsumer, Message, failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.consumers.events import FetchedBatch
    from millstream.consumers.record_types import Partition

A, B, OTHER = ("in", 0), ("in", 1), ("other", 0)
STARTED = "millstream starts=1 running=0 alone=0"


class Reading(Measured):
    """A source that has subscribed, with what is around it."""

    def __init__(
        self,
        logs: dict[Partition, int] | None = None,
        *,
        start: str = "earliest",
        until_idle: bool = False,
        exactly_once: bool = False,
        on_revoke: Callable[[list[Partition]], object] | None = None,
    ) -> None:
        super().__init__()
        self.consumer = FakeConsumer({A: 5, B: 3} if logs is None else logs)
        self.revoked: list[list[Partition]] = []
        self.lost_broker: list[str] = []
        self.assignment = Assignment()
        self.health = Health(60)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kafka_source, "Consumer", self.consumer.made)
            self.source = Source(
                {"bootstrap.servers": "nowhere"},
                Subscription("g", ("in", "other"), start, {"fetch.wait.max.ms": "7"}, until_idle, exactly_once),
                assignment=self.assignment,
                guard=CrashGuard(3, 100),
                health=self.health,
                metrics=self.metrics,
                lost_broker=self.lost_broker.append,
            )
        self.source.subscribe(on_revoke or self.revoked.append)

    def assigned(self, *partitions: Partition) -> Reading:
        """Assigned and looked at; nothing of them is read yet."""
        self.consumer.assign(*partitions)
        self.source.poll(10, 0)
        self.source.begin()
        return self

    def read(self, limit: int = 10) -> list[tuple[Partition, int]]:
        """Partition and offset of each record of a poll."""
        return rows(self.source.poll(limit, 0))

    def idle(self) -> bool:
        return self.source.idle

    def offset(self, partition: Partition) -> int | None:
        """That is committed."""
        return self.consumer.committed_offsets.get(partition, (None, ""))[0]

    def metadata(self, partition: Partition) -> str:
        """That is committed with it."""
        return self.consumer.committed_offsets[partition][1]


def rows(polled: FetchedBatch | None) -> list[tuple[Partition, int]]:
    if polled is None:
        return []
    positions = map(polled.records.position, range(len(polled.records)))
    return [((topic, partition), offset) for topic, partition, offset in positions]


def test_client_is_a_member_that_commits_by_itself_never() -> None:
    consumer = Reading(until_idle=True).consumer
    config = consumer.config
    assert config["group.id"] == "g"
    assert config["auto.offset.reset"] == "earliest"
    assert (config["enable.auto.commit"], config["enable.auto.offset.store"]) == (False, False)
    assert config["isolation.level"] == "read_committed"
    assert config["fetch.wait.max.ms"] == "7", "what the pipeline file says counts, not the default"
    assert config["enable.partition.eof"] is True
    assert consumer.topics == ["in", "other"]


def test_client_looks_for_the_groups_coordinator_before_it_joins() -> None:
    calls = Reading().consumer.calls
    assert calls.index("consumer_group_metadata") < calls.index("subscribe")


# Assignment.


def test_polls_are_short_until_the_group_has_assigned_something() -> None:
    reading = Reading({A: 0})
    reading.source.poll(10, 5.0)
    assert reading.consumer.timeouts[-1] == kafka_source.JOIN_TIMEOUT
    reading.assigned(A).source.poll(10, 5.0)
    assert reading.consumer.timeouts[-1] == 5.0


def test_records_come_once_it_is_known_what_became_of_earlier_workers() -> None:
    reading = Reading()
    reading.consumer.assign(A, B)
    assert reading.read() == []
    assert reading.consumer.paused == {A, B}
    assert reading.read() == [], "not looked at yet"
    reading.source.begin()
    assert reading.read() == [(A, 0), (A, 1), (A, 2), (A, 3), (A, 4), (B, 0), (B, 1), (B, 2)]


def test_assignment_is_counted_and_gets_an_epoch_of_its_own() -> None:
    reading = Reading().assigned(A)
    first = reading.assignment.epochs
    assert first.keys() == {A}
    assert reading.source.assigned_once
    assert reading.value(m.ASSIGNED) == 1
    assert reading.value(m.REBALANCES, kind="assigned") == 1
    reading.assigned(B)
    assert first.keys() == {A}, "what a block was read under does not change"
    assert reading.assignment.epochs[A] == first[A], "a partition that stays keeps its epoch"
    assert reading.assignment.epochs[B] > first[A]
    assert reading.value(m.ASSIGNED) == 2


def test_empty_assignment_is_one() -> None:
    reading = Reading().assigned()
    assert reading.source.assigned_once
    assert "incremental_assign" not in reading.consumer.calls


def test_records_are_read_from_the_committed_offset_and_at_most_so_many() -> None:
    reading = Reading()
    reading.consumer.committed_offsets[A] = (2, "")
    reading.assigned(A)
    assert reading.read(2) == [(A, 2), (A, 3)]
    assert reading.read(2) == [(A, 4)]
    assert reading.source.poll(2, 0) is None


def test_poll_says_under_which_assignment_it_read() -> None:
    reading = Reading().assigned(A)
    polled = reading.source.poll(10, 0)
    assert polled is not None
    assert polled.epochs is reading.assignment.epochs
    assert polled.rejection is None


def test_poll_says_when_it_read(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, kafka_source, 1_700_000_000.25)
    polled = Reading().assigned(A).source.poll(10, 0)
    assert polled is not None
    assert (polled.arrived, polled.ingest_time) == (clock.now, 1_700_000_000_250)


def test_nothing_is_marked_again_while_records_of_marked_partitions_come() -> None:
    reading = Reading().assigned(A, B)
    reading.read(1)
    reading.read(1)
    assert reading.consumer.calls.count("commit") == 1


def test_member_is_known_anew_after_each_rebalance() -> None:
    reading = Reading().assigned(A)
    assert reading.assignment.group_metadata == "generation 1"
    reading.consumer.calls.clear()
    reading.read()
    assert reading.assignment.group_metadata == "generation 1"
    assert "list_topics" not in reading.consumer.calls
    reading.consumer.assign(B)
    reading.consumer.next_failures["list_topics"].append(failure(KafkaError._TIMED_OUT))
    reading.read()
    assert reading.assignment.group_metadata == "generation 2"
    assert "list_topics" in reading.consumer.calls, "the client joins the group again without its pause"


def test_start_is_counted_at_the_first_record_and_not_before() -> None:
    """A worker that ends before it has come to a partition has not failed there."""
    reading = Reading().assigned(A, B)
    assert reading.consumer.committed_offsets == {}
    reading.consumer.pause([TopicPartition(*B)])
    reading.read()
    assert reading.consumer.committed_offsets == {A: (0, STARTED)}


def test_partition_whose_offset_is_not_told_yet_waits_for_it() -> None:
    reading = Reading()
    reading.consumer.assign(A)
    reading.read()
    reading.consumer.next_failures["committed"] = [failure(KafkaError._TIMED_OUT)]
    reading.source.begin()
    assert reading.read() == []
    reading.source.begin()
    assert reading.read() == [(A, offset) for offset in range(5)]


# Revocation.


def test_partition_is_finished_while_it_still_is_ours() -> None:
    seen: list[object] = []
    reading = Reading(on_revoke=lambda gone: seen.append((gone, dict(reading.assignment.epochs))))
    reading.assigned(A, B)
    reading.consumer.revoke(A)
    reading.read()
    assert seen == [([A], {A: 1, B: 1})]
    assert reading.assignment.epochs == {B: 1}
    assert reading.consumer.assigned.keys() == {B}
    assert reading.value(m.ASSIGNED) == 1
    assert reading.value(m.REBALANCES, kind="revoked") == 1


def test_start_of_a_partition_that_is_let_go_counts_no_more() -> None:
    reading = Reading().assigned(A)
    reading.read()
    assert reading.metadata(A) == STARTED
    reading.consumer.revoke(A)
    reading.read()
    assert reading.consumer.committed_offsets == {A: (0, "")}


def test_lost_partitions_are_dropped_and_nothing_is_committed() -> None:
    reading = Reading().assigned(A, B)
    reading.read()
    commits = reading.consumer.calls.count("commit")
    reading.consumer.lose(A, B)
    reading.read()
    assert reading.revoked == []
    assert reading.assignment.epochs == {}
    assert reading.consumer.calls.count("commit") == commits
    assert reading.metadata(A) == STARTED, "another worker has it: its offset is not ours to change"
    assert reading.value(m.REBALANCES, kind="lost") == 1
    assert reading.value(m.ASSIGNED) == 0
    assert "has removed this worker" in (reading.health.outage or "")


def test_records_of_lost_partitions_that_are_not_committed_are_counted_until_the_next_assignment() -> None:
    reading = Reading({A: 6, B: 4}).assigned(A, B)
    reading.read()
    reading.source.commits.commit({A: 5}, wait=True)
    reading.consumer.lose(A, B)
    reading.read()
    assert reading.source.lost_uncommitted == 1 + 4
    reading.consumer.assign(A)
    reading.read()
    assert reading.source.lost_uncommitted == 0


def test_records_that_another_worker_committed_in_between_are_not_lost() -> None:
    reading = Reading({A: 100}).assigned(A)
    reading.read()
    reading.source.commits.commit({A: 100}, wait=True)
    reading.consumer.lose(A)
    reading.read()
    reading.consumer.logs[A] = 510
    reading.consumer.committed_offsets[A] = (500, "")
    reading.assigned(A)
    reading.read()
    reading.consumer.lose(A)
    reading.read()
    assert reading.source.lost_uncommitted == 10


def test_partition_that_comes_back_has_another_epoch() -> None:
    reading = Reading().assigned(A)
    before = reading.assignment.epochs[A]
    reading.consumer.revoke(A)
    reading.read()
    reading.assigned(A)
    assert reading.assignment.epochs[A] > before


def test_records_of_partitions_that_went_in_the_same_poll_are_left_out() -> None:
    reading = Reading().assigned(A, B)
    reading.consumer.revoke(A)
    reading.consumer.extra = [Message(0, b"1", A), Message(1, b"1", A)]
    assert reading.read() == [(B, 0), (B, 1), (B, 2)]


def test_poll_that_brought_only_records_of_partitions_that_went_brought_none() -> None:
    reading = Reading().assigned(A)
    reading.consumer.lose(A)
    reading.consumer.extra = [Message(0, b"1", A)]
    assert reading.source.poll(10, 0) is None


# Commits.


def test_offsets_of_partitions_that_are_ours_are_committed() -> None:
    reading = Reading().assigned(A)
    assert reading.source.commits.commit({A: 3, B: 2}, wait=True)
    assert (reading.offset(A), reading.offset(B)) == (3, None)


def test_offset_that_was_sent_is_not_sent_again() -> None:
    reading = Reading().assigned(A)
    for _ in range(3):
        assert reading.source.commits.commit({A: 3}, wait=False)
    assert reading.consumer.calls.count("commit") == 1
    assert reading.source.commits.commit({A: 3}, wait=True)
    assert reading.consumer.calls.count("commit") == 2, "who waits wants to know"


def test_commit_that_the_broker_refused_is_sent_with_the_next_one(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    reading = Reading().assigned(A, B)
    reading.consumer.next_failures["on_commit"].append(failure(KafkaError.REBALANCE_IN_PROGRESS))
    reading.source.commits.commit({A: 3}, wait=False)
    reading.consumer.pause([TopicPartition(*A), TopicPartition(*B)])
    reading.read()
    assert reading.value(m.KAFKA_ERRORS, code="REBALANCE_IN_PROGRESS") == 1
    assert reading.offset(A) is None
    assert "in/0: a commit of offsets came too late for a rebalance (nothing is lost" in caplog.text
    assert "WARNING" not in caplog.text, "rebalances are usual"
    reading.source.commits.commit({A: 3}, wait=False)
    reading.read()
    assert reading.offset(A) == 3


def test_commits_that_fail_one_after_the_other_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    reading = Reading().assigned(A)
    for offset in range(1, 38):
        reading.consumer.next_failures["commit"].append(failure(KafkaError._TIMED_OUT))
        assert not reading.source.commits.commit({A: offset}, wait=True)
    [said] = [line for line in caplog.messages if "failed" in line]
    assert said.startswith("1 commit of offsets failed (nothing is lost")
    assert "in/0" in said
    assert reading.value(m.KAFKA_ERRORS, code="_TIMED_OUT") == 37


def test_who_waits_for_a_commit_learns_that_it_failed() -> None:
    reading = Reading().assigned(A)
    reading.consumer.next_failures["commit"].append(failure(KafkaError._TIMED_OUT))
    assert not reading.source.commits.commit({A: 3}, wait=True)
    assert reading.value(m.KAFKA_ERRORS, code="_TIMED_OUT") == 1
    assert reading.source.commits.commit({A: 3}, wait=False)
    reading.consumer.pause([TopicPartition(*A)])
    reading.read()
    assert reading.offset(A) == 3


def test_nothing_to_commit_is_no_failure() -> None:
    reading = Reading().assigned(A)
    assert reading.source.commits.commit({}, wait=True)
    assert reading.source.commits.commit({B: 3}, wait=True)
    assert "commit" not in reading.consumer.calls
    reading.consumer.next_failures["commit"].append(failure(KafkaError._NO_OFFSET))
    assert reading.source.commits.commit({A: 3}, wait=True)
    assert reading.value(m.KAFKA_ERRORS, code="_NO_OFFSET") is None


def test_offset_is_committed_anew_after_the_partition_went_and_came_back() -> None:
    reading = Reading().assigned(A)
    reading.source.commits.commit({A: 3}, wait=False)
    reading.consumer.pause([TopicPartition(*A)])
    reading.read()
    reading.consumer.lose(A)
    reading.read()
    del reading.consumer.committed_offsets[A]  # whoever had it meanwhile went back
    reading.assigned(A)
    reading.source.commits.commit({A: 3}, wait=False)
    reading.read()
    assert reading.offset(A) == 3


def test_ends_are_settled_once_the_broker_has_confirmed_them() -> None:
    reading = Reading().assigned(A)
    (epoch,) = reading.assignment.epochs.values()
    ends = {A: (epoch, 3)}
    assert reading.assignment.is_committed(ends) is False
    reading.source.commits.commit({A: 2}, wait=True)
    reading.assignment.note_committed({A: 2, B: 9})
    assert reading.assignment.is_committed(ends) is False
    reading.consumer.pause([TopicPartition(*A)])
    reading.source.commits.commit({A: 3}, wait=False)
    assert reading.assignment.is_committed(ends) is False, "sent is not confirmed"
    reading.read()
    assert reading.assignment.is_committed(ends) is True
    assert reading.assignment.is_committed({A: (epoch, 2)}) is True
    assert reading.assignment.is_committed({A: (epoch, 3), B: (epoch, 1)}) is None


def test_ends_of_an_assignment_that_is_over_never_settle() -> None:
    reading = Reading().assigned(A)
    (epoch,) = reading.assignment.epochs.values()
    reading.assignment.note_committed({A: 3})
    reading.consumer.lose(A)
    reading.read()
    assert reading.assignment.is_committed({A: (epoch, 3)}) is None
    reading.assigned(A)
    assert reading.assignment.is_committed({A: (epoch, 3)}) is None
    assert reading.assignment.is_committed({A: (reading.assignment.epochs[A], 3)}) is False


def test_failed_commit_settles_nothing() -> None:
    reading = Reading().assigned(A)
    reading.consumer.next_failures["on_commit"].append(failure(KafkaError._TIMED_OUT))
    reading.source.commits.commit({A: 3}, wait=False)
    reading.read()
    assert reading.assignment.is_committed({A: (reading.assignment.epochs[A], 3)}) is False


def test_start_that_a_commit_cleared_is_not_cleared_again() -> None:
    reading = Reading().assigned(A)
    reading.read()
    reading.source.commits.commit({A: 3}, wait=True)
    reading.consumer.revoke(A)
    reading.read()
    assert reading.consumer.committed_offsets == {A: (3, "")}


def delivered(reading: Reading, end: int) -> None:
    """The broker has the results of A up to this offset."""
    reading.assignment.note_delivered({A: (reading.assignment.epochs[A], end)})


def test_start_is_cleared_on_leaving_where_the_commit_that_would_have_cleared_it_was_refused() -> None:
    reading = Reading().assigned(A)
    reading.read()
    delivered(reading, 3)
    reading.consumer.next_failures["on_commit"].append(failure(KafkaError.REBALANCE_IN_PROGRESS))
    reading.source.commits.commit({A: 3}, wait=False)
    reading.read()
    assert reading.consumer.committed_offsets == {A: (0, STARTED)}
    reading.consumer.revoke(A)
    reading.read()
    assert reading.consumer.committed_offsets == {A: (3, "")}


def test_rebalance_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    reading = Reading().assigned(A, B)
    caplog.clear()
    reading.consumer.revoke(B)
    reading.assigned().assigned()  # as the group's protocol ends the rebalance
    reading.read()
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("revoked ")
    caplog.clear()
    reading.consumer.revoke(A)
    reading.assigned()
    assert caplog.messages[-1] == "assigned nothing; now 0 partitions"


def test_start_is_cleared_on_leaving_where_the_last_commit_got_no_answer() -> None:
    reading = Reading().assigned(A)
    reading.read()
    delivered(reading, 3)
    reading.consumer.next_failures["commit"].append(failure(KafkaError._TIMED_OUT))
    assert not reading.source.commits.commit({A: 3}, wait=True)
    reading.consumer.revoke(A)
    reading.read()
    assert reading.consumer.committed_offsets == {A: (3, "")}


def test_committed_offset_is_not_taken_back_by_who_leaves_before_he_knows_of_it() -> None:
    """A transaction that the writer commits while the partition goes, or a commit whose answer is still to come."""
    reading = Reading(on_revoke=lambda _gone: reading.consumer.committed_offsets.update({A: (3, "")}))
    reading.assigned(A)
    reading.read()
    assert reading.metadata(A) == STARTED
    reading.consumer.revoke(A)
    reading.read()
    assert reading.consumer.committed_offsets == {A: (3, "")}


def test_start_is_not_cleared_while_a_transaction_is_committed() -> None:
    """The commit would be newer than the transaction's offsets, and the broker would drop those."""
    reading = Reading().assigned(A)
    reading.read()
    reading.consumer.revoke(A)
    with reading.assignment.lock:
        polling = threading.Thread(target=reading.read, daemon=True)
        polling.start()
        polling.join(0.1)
        assert reading.metadata(A) == STARTED
        reading.consumer.committed_offsets[A] = (3, "")
    polling.join(10)
    assert reading.consumer.committed_offsets == {A: (3, "")}


def test_commit_that_was_waited_for_is_confirmed() -> None:
    reading = Reading().assigned(A)
    reading.source.commits.commit({A: 3}, wait=True)
    assert reading.assignment.is_committed({A: (reading.assignment.epochs[A], 3)}) is True


# Rewind.


def test_rewind_reads_again_from_the_committed_offset_under_another_epoch() -> None:
    reading = Reading().assigned(A, B)
    reading.read()
    reading.source.commits.commit({A: 2}, wait=True)
    before = reading.assignment.epochs
    assert reading.source.rewind()
    assert reading.assignment.epochs is not before
    assert all(reading.assignment.epochs[partition] > before[partition] for partition in (A, B))
    assert reading.read() == [(A, 2), (A, 3), (A, 4), (B, 0), (B, 1), (B, 2)]


def test_rewind_goes_to_the_beginning_where_nothing_is_committed() -> None:
    reading = Reading()
    reading.consumer.lows[A] = 2
    reading.assigned(A)
    reading.read()
    del reading.consumer.committed_offsets[A]
    assert reading.source.rewind()
    assert reading.read() == [(A, 2), (A, 3), (A, 4)]


def test_rewind_leaves_partitions_alone_of_which_nothing_was_read() -> None:
    """They begin at the committed offset by themselves, and a seek would not last."""
    reading = Reading().assigned(A)
    assert reading.source.rewind()
    assert "seek" not in reading.consumer.calls
    assert len(reading.read()) == 5


def test_offset_of_a_topic_that_was_created_anew_is_committed_though_it_is_the_same() -> None:
    reading = Reading().assigned(A)
    assert len(reading.read()) == 5
    assert reading.source.commit({A: 5}, wait=True)
    del reading.consumer.committed_offsets[A]
    assert reading.source.rewind()
    assert len(reading.read()) == 5
    reading.source.commit({A: 5}, wait=False)
    reading.read()  # the client commits while it is polled
    assert reading.consumer.committed_offsets[A][0] == 5


def test_rewind_waits_for_a_partition_that_was_assigned_this_moment() -> None:
    reading = Reading().assigned(A)
    reading.read()
    reading.consumer.next_failures["seek"] = [failure(KafkaError._STATE), failure(KafkaError._STATE)]
    assert reading.source.rewind()
    assert reading.consumer.calls.count("seek") == 3
    assert len(reading.read()) == 5


def test_rewind_without_the_permission_to_read_with_the_group_names_it() -> None:
    reading = Reading().assigned(A)
    reading.read()
    reading.consumer.next_failures["committed"] = [failure(KafkaError.GROUP_AUTHORIZATION_FAILED)]
    with pytest.raises(WorkerError, match=r"can't be read after an abort: .*Grant READ on the topics and on the group"):
        reading.source.rewind()


def test_rewind_that_waited_long_enough_ends_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading().assigned(A)
    reading.read()
    monkeypatch.setattr(rewind, "SEEK_TIMEOUT", -1.0)
    reading.consumer.next_failures["seek"] = [failure(KafkaError._STATE)]
    with pytest.raises(WorkerError, match="can't be read after an abort"):
        reading.source.rewind()


@pytest.mark.parametrize(
    "error",
    [
        failure(KafkaError._TIMED_OUT),
        failure(KafkaError.UNKNOWN, retriable=True),
        failure(KafkaError._WAIT_COORD),
        failure(KafkaError.NOT_COORDINATOR),
    ],
    ids=["timed out", "retriable", "no coordinator", "another coordinator"],
)
def test_rewind_is_tried_again_while_the_broker_is_away(error: Exception) -> None:
    reading = Reading().assigned(A)
    reading.read()
    reading.consumer.next_failures["committed"] = [error]
    assert not reading.source.rewind()
    assert reading.source.rewind()
    assert len(reading.read()) == 5


def test_offsets_that_cannot_be_had_end_the_worker() -> None:
    reading = Reading().assigned(A)
    reading.read()
    reading.consumer.next_failures["committed"] = [failure(KafkaError.GROUP_AUTHORIZATION_FAILED, "not allowed")]
    with pytest.raises(WorkerError, match="not allowed"):
        reading.source.rewind()


# Pause and resume.


def test_paused_topics_give_nothing_and_the_others_go_on() -> None:
    reading = Reading({A: 5, OTHER: 2}).assigned(A, OTHER)
    reading.source.pause(frozenset({"in"}))
    assert reading.value(m.PAUSED) == 1
    assert reading.read() == [(OTHER, 0), (OTHER, 1)]
    reading.source.pause(frozenset())
    assert reading.value(m.PAUSED) == 0
    assert reading.read() == [(A, offset) for offset in range(5)]


def test_what_is_paused_already_is_not_paused_again() -> None:
    reading = Reading({A: 5, OTHER: 2}).assigned(A, OTHER)
    reading.source.pause(frozenset({"in"}))
    reading.consumer.calls.clear()
    reading.source.pause(frozenset({"in"}))
    assert reading.consumer.calls == []
    reading.source.pause(reading.source.topics)
    assert reading.consumer.paused == {A, OTHER}
    reading.source.pause(frozenset({"other"}))
    assert reading.consumer.paused == {OTHER}


def test_partition_assigned_while_all_is_paused_stays_so_until_it_is_resumed() -> None:
    reading = Reading()
    reading.source.pause(reading.source.topics)
    reading.assigned(A)
    assert reading.value(m.PAUSED) == 1
    assert reading.read() == []
    reading.source.pause(frozenset())
    assert len(reading.read()) == 5


def test_partition_that_is_not_looked_at_yet_is_not_resumed() -> None:
    reading = Reading()
    reading.source.pause(reading.source.topics)
    reading.consumer.assign(A)
    reading.read()
    reading.source.pause(frozenset())
    assert reading.consumer.paused == {A}
    reading.source.begin()
    assert reading.consumer.paused == set()


def test_client_is_woken_when_it_may_fetch_again() -> None:
    reading = Reading({A: 5, OTHER: 2}).assigned(A, OTHER)
    reading.source.pause(reading.source.topics)
    reading.consumer.calls.clear()
    reading.consumer.next_failures["offsets_for_times"].append(failure(KafkaError._TIMED_OUT))
    reading.source.pause(frozenset())
    assert reading.consumer.calls[-2:] == ["resume", "offsets_for_times"]


def test_rebalance_counts_the_paused_anew() -> None:
    reading = Reading().assigned(A, B)
    reading.source.pause(reading.source.topics)
    assert reading.value(m.PAUSED) == 2
    reading.consumer.lose(A)
    reading.read()
    assert reading.value(m.PAUSED) == 1


# The window in which records come along.


class NotingWindow(BatchWindow):
    """Keeps what it is told, and stays open as long as it may."""

    def __init__(self, max_wait: float, *, enough: int = 1 << 30) -> None:
        super().__init__(max_wait, enough=enough)
        self.noted: list[tuple[float, int]] = []

    def note(self, arrived: float, records: int) -> None:
        self.noted.append((arrived, records))


def asked_of(
    reading: Reading, monkeypatch: pytest.MonkeyPatch, before: Callable[[int, float], object]
) -> list[tuple[int, float]]:
    """The limits and timeouts of the calls that fetch records. `before`: called with a call's number and its timeout."""
    asked: list[tuple[int, float]] = []
    consume = reading.consumer.consume

    def noting(limit: int, timeout: float) -> list[Message | Event]:
        asked.append((limit, timeout))
        before(len(asked), timeout)
        return consume(limit, timeout)

    monkeypatch.setattr(reading.consumer, "consume", noting)
    return asked


def test_first_record_that_was_waited_for_brings_those_that_come_along(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading({A: 0}).assigned(A)

    def more(number: int, timeout: float) -> None:
        if timeout:
            reading.consumer.logs[A] += 2 if number > 2 else 1

    asked = asked_of(reading, monkeypatch, more)
    window = NotingWindow(0.005, enough=4)
    polled = reading.source.poll(10, 0.5, window)
    assert polled is not None
    after = [at - polled.arrived for at, _ in window.noted]
    assert after == pytest.approx([0, 0.001, 0.005])
    assert [records for _, records in window.noted] == [1, 2, 1]
    assert rows(polled) == [(A, offset) for offset in range(5)]
    # All at once, then one, then what comes in a fifth of the window and in the rest of it: no more than closes a batch. Then,
    # without waiting, what has come meanwhile.
    assert [limit for limit, _ in asked] == [10, 1, 3, 1, 6]
    at_once, for_one, *along, meanwhile = [timeout for _, timeout in asked]
    assert (at_once, for_one, meanwhile) == (0, 0.5, 0)
    # The time that it has spent since the first record is taken off, so that it passes the records on in time.
    assert all(0 <= timeout <= end for timeout, end in zip(along, [0.001, 0.005], strict=True))


def test_a_batch_that_is_full_brings_the_records_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading({A: 0}).assigned(A)

    def one_then_six(number: int, _timeout: float) -> None:
        if number > 1:
            reading.consumer.logs[A] = 1 if number == 2 else 7

    asked = asked_of(reading, monkeypatch, one_then_six)
    window = NotingWindow(0.005, enough=4)
    polled = reading.source.poll(10, 0.5, window)
    assert polled is not None
    assert rows(polled) == [(A, offset) for offset in range(7)]
    assert asked[-1] == (6, 0)


def test_records_that_fill_a_batch_are_not_held_back_for_others() -> None:
    reading = Reading({A: 2}).assigned(A)
    reading.consumer.calls.clear()
    window = NotingWindow(5.0, enough=2)
    assert len(rows(reading.source.poll(10, 0.5, window))) == 2
    assert [records for _, records in window.noted] == [2]
    assert reading.consumer.calls.count("consume") == 1


def test_a_few_records_that_are_there_bring_those_that_come_along(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading({A: 1}).assigned(A)

    def one_more(_number: int, timeout: float) -> None:
        reading.consumer.logs[A] += timeout > 0

    asked = asked_of(reading, monkeypatch, one_more)
    window = NotingWindow(0.005, enough=4)
    polled = reading.source.poll(10, 0.5, window)
    assert rows(polled) == [(A, offset) for offset in range(3)]
    assert [records for _, records in window.noted] == [1, 1, 1]
    assert [limit for limit, _ in asked] == [10, 3, 2]


# What ends the worker, and what does not.


def test_fatal_error_of_the_client_ends_the_worker() -> None:
    reading = Reading()
    reading.consumer.report(KafkaError(KafkaError._FATAL, "this member is fenced", fatal=True))
    with pytest.raises(WorkerError, match="this member is fenced"):
        reading.source.poll(10, 0)
    assert reading.value(m.KAFKA_ERRORS, code="_FATAL") == 1


@pytest.mark.parametrize(
    ("code", "level"),
    [(KafkaError.COORDINATOR_LOAD_IN_PROGRESS, logging.WARNING), (KafkaError._AUTHENTICATION, logging.ERROR)],
)
def test_error_that_is_not_fatal_is_counted_and_reading_goes_on(
    code: int, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    """An outage is mended by itself; what is said of anything else is to be seen."""
    reading = Reading().assigned(A)
    reading.consumer.report(KafkaError(code))
    assert len(reading.read()) == 5
    assert reading.value(m.KAFKA_ERRORS, code=KafkaError(code).name()) == 1
    assert [record.levelno for record in caplog.records if "Kafka consumer" in record.message] == [level]


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, "input topic in does not exist"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "Grant READ and DESCRIBE"),
    ],
)
def test_topic_that_cannot_be_read_at_all_ends_the_worker(code: int, says: str) -> None:
    reading = Reading().assigned(A)
    reading.consumer.extra = [Event(code, A)]
    with pytest.raises(WorkerError, match=says):
        reading.source.poll(10, 0)


def test_lost_broker_is_counted_and_passed_on_and_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    reading = Reading().assigned(A)
    reading.consumer.report(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    assert len(reading.read()) == 5
    assert reading.value(m.KAFKA_ERRORS, code="_ALL_BROKERS_DOWN") == 1
    assert len(reading.lost_broker) == 1
    assert not [record for record in caplog.records if "Kafka consumer" in record.message]


def test_lost_broker_in_a_records_place_is_passed_on_and_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    reading = Reading().assigned(A)
    reading.consumer.extra = [Event(KafkaError._TRANSPORT, ("", 0))]
    assert len(reading.read()) == 5
    assert reading.value(m.KAFKA_ERRORS, code="_TRANSPORT") == 1
    assert len(reading.lost_broker) == 1
    assert not [record for record in caplog.records if "Kafka consumer" in record.message]


def test_other_error_in_a_records_place_is_counted_and_the_records_beside_it_are_read() -> None:
    reading = Reading().assigned(A)
    reading.consumer.extra = [Event(KafkaError._TRANSPORT, A)]
    assert len(reading.read()) == 5
    assert reading.value(m.KAFKA_ERRORS, code="_TRANSPORT") == 1


def test_batch_that_cannot_be_read_is_named_until_records_come_or_the_partition_goes() -> None:
    reading = Reading({A: 0, B: 0})
    reading.consumer.committed_offsets[B] = (7, "")
    reading.assigned(A, B)
    where = {"what": "batch", "topic": "in"}
    reading.consumer.positions[A] = 4
    reading.consumer.extra = [Event(KafkaError._BAD_MSG, A), Event(KafkaError._BAD_COMPRESSION, B)]
    reading.read()
    assert reading.value(m.BLOCKED, **where, partition="0", offset="4") is not None
    assert reading.value(m.BLOCKED, **where, partition="1", offset="7") is not None, "nothing of it was read yet"
    reading.consumer.logs[A] = 5
    assert reading.read() == [(A, 4)]
    assert reading.value(m.BLOCKED, **where, partition="0", offset="4") is None
    reading.consumer.lose(B)
    reading.read()
    assert reading.value(m.BLOCKED, **where, partition="1", offset="7") is None


# Idle, lag, the end.


def test_worker_is_idle_once_each_partition_was_read_to_its_end() -> None:
    reading = Reading(until_idle=True)
    assert not reading.idle()
    reading.assigned(A, B)
    reading.consumer.extra = [Event(KafkaError._PARTITION_EOF, A)]
    reading.read()
    assert not reading.idle()
    reading.consumer.extra = [Event(KafkaError._PARTITION_EOF, B)]
    reading.read()
    assert reading.idle()
    assert reading.value(m.KAFKA_ERRORS, code="_PARTITION_EOF") is None
    reading.source.rewind()
    assert not reading.idle(), "what was read counts no more"


def test_end_of_a_partition_that_went_and_came_back_is_to_be_read_again() -> None:
    reading = Reading(until_idle=True).assigned(A, B)
    reading.consumer.extra = [Event(KafkaError._PARTITION_EOF, p) for p in (A, B)]
    reading.read()
    reading.consumer.lose(A)
    reading.read()
    assert reading.idle(), "only what is ours is waited for"
    reading.assigned(A)
    assert not reading.idle()


def test_member_without_partitions_is_idle_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first assignment may be empty only until the others have given partitions up."""
    reading = Reading(until_idle=True).assigned()
    assert not reading.idle()
    monkeypatch.setattr(kafka_source, "NO_ASSIGNMENT_AFTER", -1.0)
    assert reading.idle()


def test_member_that_lost_its_partitions_is_not_idle_before_it_has_joined_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_source, "NO_ASSIGNMENT_AFTER", -1.0)
    reading = Reading(until_idle=True).assigned(A)
    reading.consumer.lose(A)
    reading.read()
    assert not reading.idle()
    assert reading.assigned().idle()


@pytest.mark.parametrize("loses", [False, True])
def test_member_without_an_assignment_says_so_and_one_with_an_empty_assignment_does_not(
    loses: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(awaited_assignment, "WARN_AFTER", 0.0)
    monkeypatch.setattr(kafka_source, "coordinator_error", lambda *_: "the reason")
    reading = Reading()
    if loses:
        reading.assigned(A)
        caplog.clear()
        reading.consumer.lose(A)
        reading.read()
    reading.read()
    assert "(the reason)" in caplog.messages[-1]
    reading.assigned()
    caplog.clear()
    reading.read()
    assert caplog.messages == []


def test_lag_is_from_the_acknowledged_offset_to_the_end() -> None:
    reading = Reading({A: 10, B: 3}).assigned(A, B)
    assert reading.source.lag({A: 4}) == {}, "the client does not know the ends yet"
    reading.read(12)
    assert reading.source.lag({A: 4, B: 0}) == {A: 6, B: 3}
    assert reading.source.lag({A: 10, B: 3}) == {A: 0, B: 0}
    reading.consumer.lows[A] = 8
    assert reading.source.lag({A: 4, B: 5}) == {A: 2, B: 0}, "what is gone from the topic is not waited for"
    reading.consumer.lows[B] = reading.consumer.logs[B] = 0
    assert reading.source.lag({A: 9, B: 0}) == {A: 1, B: 0}, "an empty partition has an end, too"


def test_offset_past_the_end_is_told_as_soon_as_records_below_it_came() -> None:
    reading = Reading({A: 10, B: 3})
    reading.consumer.committed_offsets |= {A: (70, ""), B: (3, "")}
    reading.assigned(A, B)
    reading.consumer.positions[A] = 0  # where the client resets to
    with pytest.raises(
        OffsetsPastEnd, match=r"group g is at offset 70 of in/0, but the partition ends at 10\. Somebody"
    ):
        reading.source.refuse_past_end()


def test_offset_that_was_past_the_end_is_told_even_if_new_events_have_filled_the_gap() -> None:
    reading = Reading({A: 10})
    reading.consumer.committed_offsets[A] = (70, "")
    reading.assigned(A)
    reading.consumer.positions[A] = 0  # where the client resets to
    reading.source.lag({})
    reading.consumer.logs[A] = 100
    with pytest.raises(
        OffsetsPastEnd, match=r"group g is at offset 70 of in/0, but the partition ends at 10\. Somebody"
    ):
        reading.source.refuse_past_end()


@pytest.mark.parametrize("offset", [10, -1001], ids=["there", "gone"])
def test_records_below_an_offset_that_is_there_or_gone_are_no_reason_to_stay_away(offset: int) -> None:
    reading = Reading({A: 10})
    reading.consumer.committed_offsets[A] = (70, "")
    reading.assigned(A)
    reading.consumer.positions[A] = 0
    reading.consumer.committed_offsets[A] = (offset, "")
    reading.source.refuse_past_end()
    reading.consumer.next_failures["committed"] = [failure(KafkaError._TIMED_OUT)]
    reading.source.refuse_past_end()


def test_offset_that_the_broker_has_confirmed_and_forgotten_ends_the_worker_with_exactly_once() -> None:
    """Kafka 4.2.1 was seen to give offsets of a quarter of an hour before, after it was killed."""
    reading = Reading(exactly_once=True).assigned(A, B)
    reading.read()
    reading.assignment.note_committed({A: 4, B: 7})
    reading.consumer.committed_offsets[A] = (1, "")
    with pytest.raises(
        OffsetsForgotten, match=r"group g is at offset 1 of in/0, but it has confirmed 4 .*: in,0,4 in,1,7$"
    ):
        reading.source.rewind()
    reading.consumer.lose(A)
    reading.read()
    reading.consumer.assign(A)
    reading.read()
    with pytest.raises(OffsetsForgotten, match="group g is at offset 1 of in/0"):
        reading.source.begin()


def test_beginning_of_an_assignment_that_the_broker_forgets_ends_the_worker_with_exactly_once() -> None:
    reading = Reading(exactly_once=True)
    reading.consumer.committed_offsets[A] = (3, "")
    reading.assigned(A).read()
    reading.consumer.committed_offsets[A] = (2, "")
    with pytest.raises(OffsetsForgotten, match="it has confirmed 3"):
        reading.source.rewind()


@pytest.mark.parametrize(("exactly_once", "offset"), [(False, 1), (True, 4), (True, 5), (True, -1001)])
def test_other_committed_offsets_end_no_worker(*, exactly_once: bool, offset: int) -> None:
    """A later offset is another worker's, and none is that of a topic that was created anew."""
    reading = Reading(exactly_once=exactly_once).assigned(A)
    reading.read()
    reading.assignment.note_committed({A: 4})
    reading.consumer.committed_offsets[A] = (offset, "")
    assert reading.source.rewind()
    assert reading.consumer.positions[A] == max(offset, 0)


def test_worker_that_leaves_in_peace_leaves_no_mark() -> None:
    reading = Reading().assigned(A)
    reading.read()
    reading.source.close()
    assert reading.consumer.closed
    assert reading.revoked == [[A]]
    assert reading.consumer.committed_offsets == {A: (0, "")}


@pytest.mark.parametrize("before", [[], [()]], ids=["joining", "assigned nothing"])
def test_worker_that_joins_leaves_once_it_has_partitions(before: list[tuple[()]]) -> None:
    reading = Reading()
    for nothing in before:
        reading.assigned(*nothing)
    waits = iter(range(3))

    def consume(limit: int, timeout: float) -> list[Message | Event]:
        if next(waits, None) is None:
            reading.consumer.assign(A)
        return FakeConsumer.consume(reading.consumer, limit, timeout)

    reading.consumer.consume = consume  # type: ignore[method-assign]
    reading.source.close()
    assert reading.revoked == [[A]]
    assert reading.consumer.closed


@pytest.mark.parametrize("left", ["no broker", "it failed", "time", "told to hurry"])
def test_worker_leaves_without_partitions_if_it_gets_none(monkeypatch: pytest.MonkeyPatch, left: str) -> None:
    reading = Reading()
    if left == "time":
        monkeypatch.setattr(kafka_source, "NO_ASSIGNMENT_AFTER", 0.02)
    if left == "no broker":
        reading.health.broker_away = "no broker answers"
    reading.source.close(ValueError("a bug") if left == "it failed" else None, lambda: left != "told to hurry")
    assert reading.consumer.closed
    assert reading.revoked == []
    assert ("consume" in reading.consumer.calls) is (left == "time")


@pytest.mark.parametrize(
    ("error", "counted"),
    [
        (ValueError("a bug"), True),
        (WorkerError("the topic is gone"), False),
        (failure(KafkaError._TRANSPORT), False),
    ],
    ids=["bug", "known", "Kafka's"],
)
def test_mark_stays_where_an_event_may_have_ended_the_worker(error: BaseException, counted: bool) -> None:
    reading = Reading().assigned(A)
    reading.read()
    reading.source.close(error)
    assert (reading.metadata(A) == STARTED) is counted


def test_group_that_cannot_be_left_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reading = Reading().assigned(A)
    back = threading.Event()
    monkeypatch.setattr(kafka_source, "LEAVE_TIMEOUT", 0.01)
    monkeypatch.setattr(reading.consumer, "close", back.wait)
    reading.source.close()
    back.set()
    assert "the group was not left" in caplog.text


def test_no_partition_is_given_up_while_the_lock_of_the_assignment_is_held() -> None:
    """The sink commits a transaction under it."""
    reading = Reading().assigned(A)
    reading.consumer.revoke(A)
    with reading.assignment.lock:
        polling = threading.Thread(target=reading.read, daemon=True)
        polling.start()
        polling.join(0.1)
        assert polling.is_alive()
        assert reading.assignment.epochs.keys() == {A}
    polling.join(10)
    assert reading.assignment.epochs == {}


def test_lost_partitions_go_although_a_transaction_still_waits_for_the_broker() -> None:
    reading = Reading().assigned(A)
    reading.consumer.lose(A)
    with reading.assignment.lock:
        polling = threading.Thread(target=reading.read, daemon=True)
        polling.start()
        polling.join(10)
        assert reading.assignment.epochs == {}


def test_lag_counts_what_was_read_and_is_not_delivered_also_after_a_rewind() -> None:
    reading = Reading({A: 6}).assigned(A)
    reading.read()
    assert reading.source.lag({}) == {A: 6}
    assert reading.source.lag({A: 4}) == {A: 2}
    reading.source.commits.commit({A: 4}, wait=True)
    reading.assignment.note_committed({A: 4})
    assert reading.source.rewind()
    assert reading.source.lag(reading.assignment.delivered()) == {A: 2}


def test_records_that_were_read_and_have_no_result_are_counted_by_partition() -> None:
    reading = Reading().assigned(A, B)
    assert reading.source.undelivered([A, B]) == 0, "nothing was read"
    reading.read()
    assert reading.source.undelivered([A, B]) == 8
    epochs = reading.assignment.epochs
    reading.assignment.note_delivered({A: (epochs[A], 4)})
    assert reading.source.undelivered([A]) == 1
    assert reading.source.undelivered([B]) == 3
