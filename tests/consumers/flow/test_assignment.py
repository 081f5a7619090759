"""The worker's partitions, and how far each is."""

from __future__ import annotations

from dataclasses import replace

from millstream.consumers.events import BatchSlice, MicroBatch
from millstream.consumers.flow.assignment import Assignment
from tests.consumers.in_memory import block

A, B = ("in", 0), ("in", 1)


def batch_under(assignment: Assignment, places: list[int]) -> MicroBatch:
    """A batch of one event of each of these partitions, read now."""
    read = replace(block("e" * len(places), places=places), epochs=assignment.epochs)
    return MicroBatch((BatchSlice(read, 0, len(places), 0, len(places)),), "size")


def left_out(assignment: Assignment, number: int, batch: MicroBatch) -> list[int]:
    """The events that don't run if the batch starts now."""
    rows: list[int] = assignment.admit(number, batch).left_out().tolist()
    return rows


def test_partition_that_comes_back_has_an_epoch_of_its_own() -> None:
    assignment = Assignment()
    assignment.add([A, B])
    first = assignment.epochs
    assignment.remove([A])
    assert assignment.epochs == {B: first[B]}
    assignment.add([A])
    assert assignment.epochs[A] > first[A]
    assert assignment.epochs[B] == first[B]
    assert first.keys() == {A, B}, "what records were read under does not change"


def test_partitions_that_are_read_again_have_new_epochs() -> None:
    assignment = Assignment()
    assignment.add([A])
    assignment.add([B])
    before = max(assignment.epochs.values())
    assignment.renew()
    assert assignment.epochs.keys() == {A, B}
    assert min(assignment.epochs.values()) > before


def test_only_what_was_delivered_under_the_current_epoch_counts() -> None:
    assignment = Assignment()
    assignment.add([A, B])
    (epoch,) = set(assignment.epochs.values())
    assignment.note_delivered({A: (epoch, 5)})
    assignment.note_delivered({B: (epoch, 7)})
    assert assignment.delivered() == {A: 5, B: 7}
    assignment.remove([A])
    assert assignment.delivered() == {B: 7}
    assignment.add([A])
    assert assignment.delivered() == {B: 7}


def test_committed_offset_is_the_last_that_was_confirmed_while_the_partition_was_ours() -> None:
    assignment = Assignment()
    assignment.note_committed({A: 3})
    assert assignment.committed_offset(A) == -1, "of another member"
    assignment.add([A])
    assignment.note_committed({A: 4, B: 9})
    assignment.note_committed({A: 5})
    assert assignment.committed_offset(A) == 5
    assert assignment.committed_offset(B) == -1


def test_ends_are_committed_once_each_partition_is_so_far_under_their_epoch() -> None:
    assignment = Assignment()
    assignment.add([A, B])
    (epoch,) = set(assignment.epochs.values())
    ends = {A: (epoch, 5), B: (epoch, 7)}
    assert assignment.is_committed(ends) is False
    assignment.note_committed({A: 5, B: 6})
    assert assignment.is_committed(ends) is False
    assignment.note_committed({B: 7})
    assert assignment.is_committed(ends) is True
    assert assignment.is_committed({A: (epoch, 6)}) is False
    assert assignment.is_committed({}) is True
    assignment.renew()
    assert assignment.is_committed(ends) is None, "what was read before is never committed"
    (renewed,) = set(assignment.epochs.values())
    assert assignment.is_committed({A: (renewed, 5)}) is False, "the offset was confirmed before"
    assignment.remove([A])
    assert assignment.is_committed({A: (renewed, 5)}) is None


def test_share_is_that_of_all_partitions_and_nothing_while_their_number_is_not_known() -> None:
    assignment = Assignment()
    assignment.add([("in", 0), ("in", 1)])
    assert assignment.share == 0.0
    assignment.all_partitions = 8
    assert assignment.share == 0.25
    assignment.remove([("in", 0)])
    assert assignment.share == 0.125
    assignment.remove([("in", 1)])
    assert assignment.share == 0.0
    assignment.all_partitions = 1  # counted before partitions were added
    assignment.add([("in", 0), ("in", 1)])
    assert assignment.share == 1.0


def test_batch_that_starts_before_a_revocation_leaves_out_the_events_of_partitions_that_go() -> None:
    assignment = Assignment()
    assignment.add([A, B])
    batch = batch_under(assignment, [0, 1, 0])
    assert assignment.admit(0, batch) is batch
    assignment.leave([A])
    cut = assignment.admit(1, batch)
    assert cut.left_out().tolist() == [0, 2]
    assert [assignment.current(part.block.epochs) for part in cut.parts] == [{B}], "nothing is written for the others"
    assert assignment.current(batch.parts[0].block.epochs) is None, "what started before is still written"
    of_others = batch_under(assignment, [1])
    assert assignment.admit(2, of_others).left_out().tolist() == []
    assignment.remove([A])
    assert left_out(assignment, 3, batch) == [0, 2]
    assignment.add([A])
    assert left_out(assignment, 4, batch) == [0, 2], "they are read again"
    assert left_out(assignment, 5, batch_under(assignment, [0, 1])) == []


def test_batch_that_starts_behind_a_later_one_is_not_cut() -> None:
    """The later one brings its partition to an offset behind the events of this one."""
    assignment = Assignment()
    assignment.add([A])
    first, second, third = (batch_under(assignment, [0]) for _ in range(3))
    assignment.admit(1, second)
    left = assignment.leave([A])
    assert left_out(assignment, 0, first) == []
    assert left_out(assignment, 2, third) == [0]
    assignment.note_final(1)
    assert not left.is_set()
    assignment.note_final(2)
    assert left.is_set()


def test_partitions_go_at_once_if_all_that_has_started_is_final() -> None:
    assignment = Assignment()
    assignment.add([A, B])
    assert assignment.leave([A]).is_set(), "nothing has started"
    assignment.remove([A])
    assignment.admit(0, batch_under(assignment, [1]))
    assignment.note_final(1)
    assert assignment.leave([B]).is_set()


def test_events_of_lost_partitions_do_not_start() -> None:
    assignment = Assignment()
    assignment.add([A, B])
    batch = batch_under(assignment, [0, 1])
    assignment.remove([A], lost=True)
    assert left_out(assignment, 0, batch) == [0]


def test_lost_partitions_go_while_a_transaction_commits() -> None:
    assignment = Assignment()
    assignment.add([("in", 0), ("in", 1)])
    with assignment.lock:  # as a transaction holds it, for as long as the broker is away
        assignment.remove([("in", 0)], lost=True)
    assert assignment.epochs.keys() == {("in", 1)}
