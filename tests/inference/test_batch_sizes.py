import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.inference.batch_sizes import batch_sizes_of, bucket_of, default_batch_sizes

MOST = st.integers(1, 10_000)


@given(MOST)
def test_sizes_ascend_from_one_to_the_limit(most: int) -> None:
    sizes = default_batch_sizes(most)
    assert (sizes[0], sizes[-1]) == (1, most)
    assert list(sizes) == sorted(set(sizes))


@given(MOST, st.data())
def test_padding_at_most_doubles_a_micro_batch(most: int, data: st.DataObject) -> None:
    sizes = default_batch_sizes(most)
    events = data.draw(st.integers(1, most))
    assert events <= bucket_of(events, sizes) <= max(2 * events - 1, 1)


@given(st.lists(st.integers(1, 50), min_size=1, unique=True).map(sorted), st.integers(0, 60))
def test_bucket_is_the_smallest_that_holds_the_events(sizes: list[int], events: int) -> None:
    large_enough = [size for size in sizes if size >= events]
    if large_enough:
        assert bucket_of(events, sizes) == min(large_enough)
    else:
        with pytest.raises(ValueError, match=f"{events} events are more than the largest batch size, {sizes[-1]}"):
            bucket_of(events, sizes)


@given(st.lists(st.integers(1, 50), min_size=1, unique=True).map(sorted), st.integers(1, 60))
def test_sizes_of_the_model_end_with_the_one_that_holds_the_largest_batch(sizes: list[int], most: int) -> None:
    found = batch_sizes_of(sizes, most)
    assert list(found) == sizes[: len(found)]
    assert {bucket_of(events, sizes) for events in range(1, min(most, sizes[-1]) + 1)} == set(found)


def test_model_without_sizes_has_the_default_ones() -> None:
    assert batch_sizes_of((), 8) == default_batch_sizes(8)
