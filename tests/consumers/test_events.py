import numpy as np
import pytest

from millstream.consumers.events import BatchSlice, MicroBatch
from tests.consumers.in_memory import answered, batch_of, block, offsets


def test_micro_batch_sums_its_parts() -> None:
    first, second = block("ere", arrived=2.0), block("te", 3, arrived=1.0)
    batch = MicroBatch((BatchSlice(first, 1, 3, 1, 2), BatchSlice(second, 0, 2, 0, 1)), "size")
    assert (batch.records, batch.events, batch.bytes, batch.arrived) == (4, 2, 30, 1.0)
    np.testing.assert_array_equal(batch.tensors()["x"], [[2], [4]])


@pytest.mark.parametrize("most", [1, 2, 3, 5, 6, 100])
def test_batch_is_split_into_smaller_ones_that_have_all_its_records_in_order(most: int) -> None:
    first, second, third = block("reetee"), block("rt", 6), block("eert", 8)
    parts = (BatchSlice(first, 1, 6, 0, 4), BatchSlice(second, 0, 2, 0, 0), BatchSlice(third, 0, 4, 0, 2))
    whole = MicroBatch(parts, "size", 7.0)
    split = whole.split(most)
    assert [each.events for each in split] == [min(most, 6 - start) for start in range(0, 6, most)]
    assert [offset for each in split for offset in offsets(each)] == offsets(whole)
    assert [x for each in split for x in each.tensors()["x"].ravel().tolist()] == [1, 2, 4, 5, 8, 9]
    assert {(each.reason, each.closed) for each in split} == {("size", 7.0)}


def test_part_without_events_leaves_the_tensors_alone() -> None:
    first, second = block("rt"), block("e", 2)
    batch = MicroBatch((BatchSlice(first, 0, 2, 0, 0), BatchSlice(second, 0, 1, 0, 1)), "size")
    np.testing.assert_array_equal(batch.tensors()["x"], [[2]])


def test_range_without_records_has_no_bytes_and_refuses_nothing() -> None:
    rows = BatchSlice(block("err"), 1, 1, 1, 1)
    assert rows.bytes == 0
    assert rows.rejected() == {}


def test_range_refuses_only_its_own() -> None:
    assert list(BatchSlice(block("rerr"), 1, 3, 0, 1).rejected()) == [2]


@pytest.mark.parametrize(
    "travelling", [block("e"), batch_of("e"), batch_of("e").parts[0], answered("e")], ids=lambda one: type(one).__name__
)
def test_what_travels_between_stages_is_frozen(travelling: object) -> None:
    for name in type(travelling).__annotations__:
        with pytest.raises(AttributeError):
            setattr(travelling, name, None)


def test_cut_batch_has_all_its_records_and_leaves_out_the_events_of_the_other_partitions() -> None:
    mixed, whole = block("eteer", places=[0, 1, 1, 0, 0]), block("ee", 5, places=[1, 1])
    batch = MicroBatch((BatchSlice(mixed, 0, 5, 0, 3), BatchSlice(whole, 0, 2, 0, 2)), "size")
    assert batch.under(mixed.epochs) is batch
    cut = batch.under({("in", 1): 1})
    assert cut.is_cut
    assert cut.left_out().tolist() == [0, 2]
    assert offsets(cut) == offsets(batch)
    assert [part.block.epochs for part in cut.parts] == [{("in", 1): 1}] * 2
    again = cut.under({("in", 1): 2})
    assert again.left_out().tolist() == [0, 1, 2, 3, 4], "read under another epoch"
