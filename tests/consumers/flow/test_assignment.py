"""The worker's partitions, and how far each is."""

from __future__ import annotations

from millstream.consumers.flow.assignment import Assignment

A, B = ("in", 0), ("in", 1)


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
