from collections.abc import Sequence
from itertools import groupby

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.consumers.errors import OffsetsRewound, ReadBelowCommitted
from millstream.consumers.events import Epochs
from millstream.consumers.record_types import Partition
from millstream.consumers.source.offset_order import OffsetOrderCheck

PLACES: list[Partition] = [("a", 0), ("a", 1), ("b", 0)]


def check(order: OffsetOrderCheck, records: Sequence[tuple[Partition, int]], epochs: Epochs) -> None:
    """Records by partition and offset."""
    numbers = {place: number for number, place in enumerate(dict(records))}
    order.check(
        {number: place for place, number in numbers.items()},
        np.array([numbers[place] for place, _ in records]),
        np.array([offset for _, offset in records]),
        epochs,
    )


def goes_back(reads: list[list[tuple[int, int]]], epochs: list[int]) -> bool:
    """The rule, record by record."""
    read: dict[tuple[int, int], int] = {}
    for block, epoch in zip(reads, epochs, strict=True):
        for place, offset in block:
            if offset <= read.get((place, epoch), -1):
                return True
            read[place, epoch] = offset
    return False


@given(
    st.lists(
        st.tuples(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30)), min_size=1, max_size=6), st.booleans()),
        max_size=5,
    ),
    st.booleans(),
)
def test_only_what_was_read_under_the_same_assignment_is_refused(
    blocks: list[tuple[list[tuple[int, int]], bool]], in_order: bool
) -> None:
    reads = [block for block, _ in blocks]
    if in_order:  # most of what is drawn goes back
        reads = [[(place, at * 100 + i) for i, (place, _) in enumerate(block)] for at, block in enumerate(reads)]
    epochs, epoch = [], 1
    for _, rewound in blocks:
        epoch += rewound
        epochs.append(epoch)
    forward = OffsetOrderCheck({})

    def run() -> None:
        for block, number in zip(reads, epochs, strict=True):
            check(forward, [(PLACES[place], offset) for place, offset in block], dict.fromkeys(PLACES, number))

    if goes_back(reads, epochs):
        with pytest.raises(OffsetsRewound, match="it is read again from the committed offset"):
            run()
    else:
        run()


def test_message_names_the_place() -> None:
    forward = OffsetOrderCheck({})
    place, epochs = ("events", 3), {("events", 3): 1}
    check(forward, [(place, 5), (place, 6), (place, 9)], epochs)
    with pytest.raises(OffsetsRewound, match="gave events/3 again from offset 0, though it was read up to 9"):
        check(forward, [(place, 0), (place, 1)], epochs)
    with pytest.raises(OffsetsRewound, match="gave events/3 again from offset 2, though it was read up to 8"):
        check(OffsetOrderCheck({}), [(place, 8), (place, 2)], epochs)


def test_is_told_once_until_all_is_read_again() -> None:
    place, other, forward = ("events", 0), ("events", 1), OffsetOrderCheck({})
    epochs = {place: 1, other: 2}
    check(forward, [(place, 7), (other, 3)], epochs)
    with pytest.raises(OffsetsRewound):
        check(forward, [(place, 7)], epochs)
    check(forward, [(place, 0), (other, 0)], epochs)
    check(forward, [(place, 0), (other, 0)], {place: 3, other: 3})
    with pytest.raises(OffsetsRewound):
        check(forward, [(other, 0)], {place: 3, other: 3})


def test_gaps_and_lost_partitions_are_no_concern() -> None:
    forward = OffsetOrderCheck({})
    place = ("events", 0)
    for offsets, epoch in groupby([(1, 1), (7, 1), (3, 2), (4, 2), (2, None)], key=lambda pair: pair[1]):
        read = [offset for offset, _ in epoch]
        check(forward, [(place, offset) for offset in read], {} if offsets is None else {place: offsets})


def test_nothing_comes_from_before_where_a_partition_was_to_begin() -> None:
    begins: dict[Partition, int] = {}
    place = ("events", 0)
    forward = OffsetOrderCheck(begins)
    begins[place] = 256  # committed when it was assigned
    check(forward, [(place, 300)], {place: 1})  # what is between was compacted away
    check(forward, [(place, 256)], {place: 2})  # rewound
    for epoch, offset in [(3, 255), (3, 0), (None, 0)]:
        with pytest.raises(
            ReadBelowCommitted, match=f"began events/0 at offset {offset}, though everything below 256 was committed"
        ):
            check(forward, [(place, offset), (place, offset + 1)], {} if epoch is None else {place: epoch})
