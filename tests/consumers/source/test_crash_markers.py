"""What workers leave with committed offsets: read at the assignment, counted at the first record, cleared by who leaves."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, cast

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, TopicPartition

from millstream.consumers.records import Records
from millstream.consumers.source import crash_markers as module
from millstream.consumers.source.crash_markers import CrashMarkers
from millstream.consumers.source.crashes import MAX_SUSPECT_EVENTS, CrashGuard
from tests.consumers.in_memory import MemoryRecord
from tests.consumers.source.fake_consumer import FakeConsumer, failure

if TYPE_CHECKING:
    from confluent_kafka import Consumer

    from millstream.consumers.record_types import Partition, Record

A, B = ("in", 0), ("in", 1)


def said(starts: int, running: int = 0, alone: int = 0) -> str:
    return f"millstream starts={starts} running={running} alone={alone}"


class Beginning:
    """A worker at its first look, with what the broker has."""

    def __init__(self, start: str = "earliest", **committed: tuple[int, str]) -> None:
        self.consumer = FakeConsumer({A: 10, B: 10})
        self.consumer.committed_offsets = {{"a": A, "b": B}[name]: offset for name, offset in committed.items()}
        self.guard = CrashGuard(2, 100)
        self.starts = CrashMarkers(cast("Consumer", self.consumer), self.guard, start, lambda _positions: None)

    def look(self, *partitions: Partition) -> list[tuple[str, int]]:
        self.starts.new |= set(partitions)
        return sorted((p.topic, p.partition) for p in self.starts.look())

    def most(self) -> int | None:
        """Events that may run at a time."""
        return self.guard.most

    @property
    def committed(self) -> dict[Partition, tuple[int, str]]:
        return self.consumer.committed_offsets


def read(*positions: tuple[Partition, int]) -> Records:
    records: list[Record] = [MemoryRecord(offset, b"1", place) for place, offset in positions]
    return Records.of(records)


def offsets(positions: list[TopicPartition]) -> list[tuple[int, int]]:
    return [(p.partition, p.offset) for p in positions]


# Where partitions are begun.


def test_partitions_begin_at_their_committed_offset_or_at_the_first_record_that_is_there() -> None:
    beginning = Beginning(a=(4, ""))
    beginning.consumer.lows[B] = 3
    assert offsets(beginning.starts.places([TopicPartition(*A), TopicPartition(*B)])) == [(0, 4), (1, 3)]


def test_offset_zero_is_a_committed_one() -> None:
    beginning = Beginning(a=(0, ""))
    beginning.consumer.lows[A] = 3
    assert offsets(beginning.starts.places([TopicPartition(*A)])) == [(0, 0)]


def test_partitions_begin_as_the_client_finds_it_where_the_broker_does_not_say() -> None:
    beginning = Beginning(a=(4, ""))
    asked = [TopicPartition(*A)]
    beginning.consumer.next_failures["committed"].append(failure(KafkaError._TIMED_OUT))
    assert beginning.starts.places(asked) is asked


def test_partitions_without_an_offset_that_begin_at_the_end_are_left_to_the_client() -> None:
    """The end moves on until they are looked at."""
    beginning = Beginning("latest", a=(4, ""))
    asked = [TopicPartition(*A)]
    assert beginning.starts.places(asked) is asked
    assert beginning.consumer.calls == []


@pytest.mark.parametrize(
    ("start", "logs", "expected"),
    [("earliest", (2, 10), 2), ("earliest", (5, 5), None), ("latest", (2, 10), 10), ("latest", (5, 5), 5)],
)
def test_beginning_of_a_partition_without_an_offset(start: str, logs: tuple[int, int], expected: int | None) -> None:
    beginning = Beginning(start)
    beginning.consumer.lows[A], beginning.consumer.logs[A] = logs
    assert beginning.starts.beginning(TopicPartition(*A)) == expected
    assert beginning.starts.beginning(TopicPartition(*A, 7)) == 7
    assert beginning.starts.beginning(TopicPartition(*A, 0)) == 0


# The look.


def test_partitions_that_were_looked_at_are_new_no_more_and_begin_where_they_are_committed() -> None:
    beginning = Beginning(a=(4, ""))
    assert beginning.look(A, B) == [A, B]
    assert beginning.starts.new == set()
    assert beginning.starts.start_offsets == {A: 4, B: 0}
    assert beginning.committed == {A: (4, "")}, "a look changes nothing"


def test_offsets_that_are_not_told_are_asked_for_again() -> None:
    beginning = Beginning(a=(4, ""))
    beginning.consumer.next_failures["committed"].append(failure(KafkaError._TIMED_OUT))
    assert beginning.look(A) == []
    assert beginning.starts.new == {A}
    assert beginning.starts.start_offsets == {}
    assert beginning.look() == [A]


def test_broker_is_given_more_time_with_each_answer_that_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    beginning = Beginning()
    patience: list[float] = []

    def committed(_partitions: object, timeout: float) -> None:
        patience.append(timeout)
        raise failure(KafkaError._TIMED_OUT)

    with monkeypatch.context() as patch:
        patch.setattr(beginning.consumer, "committed", committed)
        for _ in range(8):
            beginning.look(A)
    assert patience == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    assert beginning.look() == [A]
    monkeypatch.setattr(beginning.consumer, "committed", committed)
    beginning.look(B)
    assert patience[-1] == module.COMMITTED_TIMEOUTS[0], "who has answered is asked for a moment only"


def test_offsets_that_are_long_not_told_are_worth_a_word(caplog: pytest.LogCaptureFixture) -> None:
    beginning = Beginning()
    beginning.consumer.next_failures["committed"] = [failure(KafkaError._TIMED_OUT) for _ in range(10)]
    with caplog.at_level(logging.WARNING):
        for _ in range(9):
            beginning.look(A)
        assert caplog.text == ""
        beginning.look(A)
        assert "does not tell the committed offsets of in/0" in caplog.text
        assert "asked 10 times" in caplog.text
        caplog.clear()
        beginning.look()  # told at last
        beginning.consumer.next_failures["committed"] = [failure(KafkaError._TIMED_OUT) for _ in range(10)]
        for _ in range(9):
            beginning.look(B)
        assert caplog.text == "", "counted from the beginning"
        beginning.look()
        assert "asked 10 times" in caplog.text


def test_beginning_at_the_end_is_pinned() -> None:
    """A rewind, or the next worker, would begin later otherwise."""
    beginning = Beginning("latest", b=(4, "x"))
    beginning.look(A, B)
    assert beginning.committed == {A: (10, ""), B: (4, "x")}
    assert beginning.starts.start_offsets == {A: 10, B: 4}


def test_partition_that_its_topic_got_meanwhile_begins_at_its_beginning() -> None:
    beginning = Beginning("latest", a=(4, "x"))
    del beginning.consumer.logs[B]
    beginning.look(A)
    beginning.consumer.logs[B], beginning.consumer.lows[B] = 10, 3
    beginning.look(B)
    assert beginning.committed[B] == (3, "")
    assert beginning.starts.start_offsets[B] == 3


def test_records_that_were_deleted_unread_are_told(caplog: pytest.LogCaptureFixture) -> None:
    beginning = Beginning(a=(4, ""), b=(3, ""))
    beginning.consumer.lows[A], beginning.consumer.lows[B] = 7, 3
    beginning.look(A, B)
    beginning.starts.warn_of_deleted([TopicPartition(*A), TopicPartition(*B)])
    assert [record.getMessage() for record in caplog.records] == [
        "in/0: retention has deleted the offsets from 4 to 6 before the group read them. Their events get no prediction "
        "(`millstream docs runbook#millstreameventsdeletedunread`)"
    ]


def test_offset_zero_is_pinned_already() -> None:
    beginning = Beginning("latest", a=(0, "of others"))
    beginning.look(A)
    assert beginning.committed == {A: (0, "of others")}


def test_beginning_that_could_not_be_pinned_is_looked_for_again() -> None:
    beginning = Beginning("latest")
    beginning.consumer.next_failures["commit"].append(failure(KafkaError._TIMED_OUT))
    assert beginning.look(A) == []
    assert beginning.look() == [A]
    assert beginning.committed == {A: (10, "")}


def test_empty_partition_without_an_offset_has_nothing_to_count() -> None:
    beginning = Beginning()
    beginning.consumer.logs[A] = 0
    assert beginning.look(A) == [A]
    assert beginning.starts.start_offsets == {}
    beginning.starts.mark(read((A, 0)))
    assert beginning.committed == {}


# What is counted.


def test_start_is_counted_with_those_before_at_the_first_records_of_a_partition() -> None:
    beginning = Beginning(a=(4, said(1)), b=(2, ""))
    beginning.look(A, B)
    beginning.starts.mark(read((A, 4), (A, 5)))
    assert beginning.committed == {A: (4, said(2)), B: (2, "")}
    beginning.starts.mark(read((A, 6), (B, 2)))
    assert beginning.committed == {A: (4, said(2)), B: (2, said(1))}
    beginning.starts.mark(read((A, 7), (B, 3)))
    assert beginning.consumer.calls.count("commit") == 2


def test_start_that_could_not_be_counted_is_not_cleared_either() -> None:
    beginning = Beginning(a=(4, ""))
    beginning.look(A)
    beginning.consumer.next_failures["commit"].append(failure(KafkaError._TIMED_OUT))
    beginning.starts.mark(read((A, 4)))
    beginning.starts.uncount([A], {})
    assert beginning.consumer.calls.count("commit") == 1


def test_worker_that_leaves_in_peace_clears_its_start() -> None:
    beginning = Beginning(a=(4, said(1)), b=(2, ""))
    beginning.look(A, B)
    beginning.starts.mark(read((A, 4), (B, 2)))
    beginning.starts.uncount([A], {})
    assert beginning.committed == {A: (4, ""), B: (2, said(1))}
    beginning.starts.uncount([A], {})
    assert beginning.consumer.calls.count("commit") == 2


def test_start_that_cannot_be_cleared_is_let_be() -> None:
    beginning = Beginning(a=(4, ""))
    beginning.look(A)
    beginning.starts.mark(read((A, 4)))
    beginning.consumer.next_failures["commit"].append(failure(KafkaError._TIMED_OUT))
    beginning.starts.uncount([A], {})
    assert beginning.committed == {A: (4, said(1))}


def test_start_is_not_counted_or_cleared_behind_a_later_offset() -> None:
    """It would take the committed offset back."""
    beginning = Beginning(a=(4, ""), b=(2, ""))
    beginning.look(A, B)
    beginning.starts.mark(read((A, 4)))
    beginning.starts.note_committed({A: 5, B: 5})
    beginning.starts.mark(read((B, 5)))
    assert beginning.committed == {A: (4, said(1)), B: (2, "")}
    beginning.starts.uncount([A, B], {})
    assert beginning.committed == {A: (4, said(1)), B: (2, "")}


def test_what_went_is_forgotten() -> None:
    beginning = Beginning(a=(4, said(2)), b=(2, ""))
    beginning.look(A, B)
    assert beginning.most() == MAX_SUSPECT_EVENTS
    beginning.starts.new.add(A)
    beginning.starts.mark(read((A, 4)))
    beginning.starts.forget({A})
    assert beginning.starts.new == set()
    assert beginning.starts.start_offsets == {B: 2}
    assert beginning.most() is None, "its next owner suspects it"
    beginning.starts.uncount([A], {})
    assert beginning.committed[A] == (4, said(3))


def test_start_is_cleared_where_only_the_answer_that_it_is_counted_got_lost() -> None:
    beginning = Beginning(a=(4, said(1)), b=(2, said(1)))
    beginning.look(A, B)
    beginning.consumer.next_failures["commit"].append(failure(KafkaError._TIMED_OUT))
    beginning.starts.mark(read((A, 4), (B, 2)))
    beginning.committed[A] = (4, said(2))  # the broker has this one nevertheless
    beginning.starts.uncount([A, B], {})
    assert beginning.committed == {A: (4, ""), B: (2, said(1))}


def test_start_is_not_counted_where_records_come_from_below_the_beginning() -> None:
    """The topic was created anew: a commit would bring back an offset that the broker has forgotten."""
    beginning = Beginning(a=(4, ""), b=(2, ""))
    beginning.look(A, B)
    del beginning.committed[A]
    beginning.starts.mark(read((A, 0), (B, 2)))
    beginning.starts.mark(read((A, 7)))
    assert beginning.committed == {B: (2, said(1))}


def test_confirmation_of_an_earlier_commit_says_nothing_about_a_mark() -> None:
    beginning = Beginning(a=(4, ""))
    beginning.look(A)
    beginning.starts.mark(read((A, 4)))
    beginning.starts.note_committed({A: 4})
    beginning.starts.uncount([A], {})
    assert beginning.committed == {A: (4, "")}


def test_start_is_cleared_at_the_offset_up_to_which_all_is_delivered() -> None:
    beginning = Beginning(a=(4, ""))
    beginning.look(A)
    beginning.starts.mark(read((A, 4)))
    beginning.starts.uncount([A], {A: 7})
    assert beginning.committed == {A: (7, "")}


def test_start_is_not_cleared_where_the_broker_does_not_tell_what_is_committed() -> None:
    """A transaction whose end is unknown hides it: what it commits would be taken back."""
    beginning = Beginning(a=(4, ""))
    beginning.look(A)
    beginning.starts.mark(read((A, 4)))
    beginning.consumer.next_failures["committed"].append(failure(KafkaError._TIMED_OUT))
    beginning.starts.uncount([A], {})
    assert beginning.committed == {A: (4, said(1))}


# What runs now, under suspicion.


def test_note_says_which_events_run_now() -> None:
    beginning = Beginning(a=(4, said(2)), b=(2, ""))
    beginning.look(A, B)
    beginning.starts.note_running(read((A, 4), (A, 5), (B, 2)))
    assert beginning.committed == {A: (4, said(2, running=2)), B: (2, "")}
    beginning.starts.uncount([A], {})
    assert beginning.committed[A] == (4, "")


def test_note_is_cleared_by_who_leaves_while_its_events_run_though_those_before_them_are_committed() -> None:
    beginning = Beginning(a=(2, said(2)))
    beginning.look(A)
    beginning.starts.mark(read((A, 2)))
    beginning.committed[A] = (4, "")
    beginning.starts.note_committed({A: 4})
    beginning.starts.note_running(read((A, 4)))
    beginning.starts.note_committed({A: 4})  # what is delivered is told again at each turn of the loop
    assert beginning.committed == {A: (4, said(2, running=1, alone=1))}
    beginning.starts.uncount([A], {A: 4})
    assert beginning.committed == {A: (4, "")}


def test_nothing_is_noted_where_nothing_is_suspected() -> None:
    beginning = Beginning(b=(2, ""))
    beginning.look(B)
    beginning.starts.note_running(read((B, 2)))
    assert "commit" not in beginning.consumer.calls


def test_note_that_cannot_be_written_is_done_without(caplog: pytest.LogCaptureFixture) -> None:
    beginning = Beginning(a=(4, said(2)))
    beginning.look(A)
    beginning.consumer.next_failures["commit"].append(failure(KafkaError._TIMED_OUT))
    beginning.starts.note_running(read((A, 4)))
    assert "the note of what runs now was not written" in caplog.text
    beginning.starts.uncount([A], {})
    assert beginning.committed == {A: (4, said(2))}


def test_partitions_assigned_without_an_offset_are_assigned_again_with_it() -> None:
    """A broker that has just come back may refuse the client's own request for offsets, and the client does not ask again."""
    beginning = Beginning(a=(4, ""))
    consumer, starts = beginning.consumer, beginning.starts
    consumer.next_failures["committed"] = [failure(KafkaError._TIMED_OUT)]
    places = starts.places([TopicPartition(*A), TopicPartition(*B)])
    assert [p.offset for p in places] == [OFFSET_INVALID, OFFSET_INVALID]
    consumer.incremental_assign(places)
    consumer.pause(places)
    consumer.calls.clear()
    assert beginning.look(A, B) == [A, B]
    assert consumer.assigned == {A: 4, B: 0}
    assert consumer.paused == {A, B}, "the source resumes them"
    assert beginning.look() == []
    assert consumer.calls.count("incremental_assign") == 1, "once is enough"


def test_partitions_assigned_with_their_offset_are_not_assigned_again() -> None:
    beginning = Beginning(a=(4, ""))
    consumer = beginning.consumer
    consumer.incremental_assign(beginning.starts.places([TopicPartition(*A)]))
    assert beginning.look(A) == [A]
    assert consumer.calls.count("incremental_assign") == 1


def test_lost_partitions_are_not_assigned_again() -> None:
    beginning = Beginning(a=(4, ""), b=(5, ""))
    consumer, starts = beginning.consumer, beginning.starts
    consumer.next_failures["committed"] = [failure(KafkaError._TIMED_OUT)]
    places = starts.places([TopicPartition(*A), TopicPartition(*B)])
    consumer.incremental_assign(places)
    starts.forget({A})
    consumer.incremental_unassign(places[:1])
    assert beginning.look(B) == [B]
    assert consumer.assigned == {B: 5}
