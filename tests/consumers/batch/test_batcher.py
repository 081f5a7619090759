from collections import Counter
from dataclasses import replace
from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.consumers.batch.batcher import Batcher, Limits
from millstream.consumers.events import BatchSlice, DecodedBatch, MicroBatch
from millstream.consumers.flow.batch_window import BatchWindow
from tests.consumers.in_memory import block, offsets

KINDS = st.text("eertl", min_size=1, max_size=12)
FEWER = settings(max_examples=40)  # each: six tests share one way to make blocks
LIMITS = st.builds(
    Limits,
    max_events=st.integers(1, 8),
    max_bytes=st.integers(1, 60),
    max_wait=st.just(1.0),
    max_cost=st.none() | st.integers(1, 12),
)


@st.composite
def blocks(draw: st.DrawFn) -> list[DecodedBatch]:
    """Blocks in the order and at the times they were read, offsets ascending."""
    kinds = draw(st.lists(KINDS, min_size=1, max_size=6))
    starts = accumulate((len(text) for text in kinds), initial=0)
    times = sorted(draw(st.lists(st.integers(0, 5), min_size=len(kinds), max_size=len(kinds))))
    sizes = [draw(st.lists(st.integers(0, 30), min_size=len(text), max_size=len(text))) for text in kinds]
    costs = [draw(st.none() | st.lists(st.integers(0, 9), min_size=len(text), max_size=len(text))) for text in kinds]
    places = [draw(st.lists(st.integers(0, 3), min_size=len(text), max_size=len(text))) for text in kinds]
    return [
        block(text, start, sizes=size, arrived=float(time), costs=cost, places=place)
        for text, start, size, time, cost, place in zip(kinds, starts, sizes, times, costs, places, strict=False)
    ]


def one_record(one: DecodedBatch, row: int) -> BatchSlice:
    first, last = np.searchsorted(one.good, [row, row + 1]).tolist()
    return BatchSlice(one, row, row + 1, first, last)


def load(batch: MicroBatch) -> int:
    """The bytes that count for the size of a batch: not those of events that are left out."""
    return sum(part.load for part in batch.parts)


def full_batches(rows: BatchSlice, size: int) -> list[BatchSlice]:
    """Cut rows after each so many events, at the last one's record."""
    starts = [
        rows.start,
        *(int(rows.block.good[last - 1]) + 1 for last in range(rows.first + size, rows.last + 1, size)),
    ]
    return [
        BatchSlice(rows.block, start, stop, rows.first + at * size, rows.first + (at + 1) * size)
        for at, (start, stop) in enumerate(pairwise(starts))
    ]


def batched(made: list[DecodedBatch], limits: Limits) -> list[tuple[MicroBatch, float]]:
    """What a batcher makes of blocks that come at their times, each batch with the time at which it closed."""
    batcher = Batcher(limits)
    found: list[tuple[MicroBatch, float]] = []
    for at, one in enumerate(made):
        batcher.add(one)
        until = made[at + 1].arrived if at + 1 < len(made) else one.arrived
        now = one.arrived
        while now <= until:
            while batch := batcher.take(now):
                found.append((batch, now))
            due = batcher.due()
            if due is None or due > until:
                break
            assert due > now, "what is due was not given"
            now = due
    while batch := batcher.drain():
        found.append((batch, made[-1].arrived))
    assert batcher.due() is None
    return found


@FEWER
@given(blocks(), LIMITS)
def test_every_record_is_in_exactly_one_batch_in_order(made: list[DecodedBatch], limits: Limits) -> None:
    found = [offset for batch, _ in batched(made, limits) for offset in offsets(batch)]
    assert found == [offset for one in made for offset in one.offsets.tolist()]


@FEWER
@given(blocks(), LIMITS)
def test_no_batch_passes_its_limits_but_one_record_alone(made: list[DecodedBatch], limits: Limits) -> None:
    for batch, _ in batched(made, limits):
        assert batch.records >= 1
        assert batch.events <= limits.max_events
        assert load(batch) <= limits.max_bytes or batch.records == 1
        assert limits.max_cost is None or batch.cost <= limits.max_cost or batch.events == 1


@FEWER
@given(blocks(), LIMITS)
def test_batch_closed_as_full_takes_all_that_fits(made: list[DecodedBatch], limits: Limits) -> None:
    records = [one_record(one, row) for one in made for row in range(len(one.offsets))]
    most = limits.max_cost
    for batch, _ in batched(made, limits):
        if batch.reason in {"size", "bytes", "cost"} and batch.events < limits.max_events:
            following = records[offsets(batch)[-1] + 1 :]
            full = load(batch) >= limits.max_bytes or (most is not None and batch.cost >= most)
            assert full or (
                load(batch) + following[0].load > limits.max_bytes
                or (most is not None and batch.cost + following[0].cost > most)
            )


@FEWER
@given(blocks(), LIMITS)
def test_partitions_of_the_records_change_no_batch(made: list[DecodedBatch], limits: Limits) -> None:
    of_one_partition = [replace(one, places=np.zeros_like(one.places)) for one in made]
    found, expected = (
        [(offsets(batch), batch.reason, closed) for batch, closed in batched(blocks, limits)]
        for blocks in (made, of_one_partition)
    )
    assert found == expected


@FEWER
@given(blocks(), LIMITS)
def test_nothing_waits_longer_than_allowed(made: list[DecodedBatch], limits: Limits) -> None:
    for batch, closed in batched(made, limits):
        assert closed <= batch.arrived + limits.max_wait


@FEWER
@given(blocks(), LIMITS)
def test_events_of_a_batch_are_the_good_rows_of_its_records(made: list[DecodedBatch], limits: Limits) -> None:
    for batch, _ in batched(made, limits):
        for part in batch.parts:
            good = part.block.good[part.first : part.last].tolist()
            assert good == [row for row in part.block.good.tolist() if part.start <= row < part.stop]
        if batch.events:
            ids = [event for part in batch.parts for event in part.block.ids[part.first : part.last]]
            assert [str(int(offset)) for offset in batch.tensors()["x"][:, 0]] == ids


@FEWER
@given(blocks(), LIMITS)
def test_refused_records_and_tombstones_ride_in_their_place(made: list[DecodedBatch], limits: Limits) -> None:
    found = [
        part.block.offsets[row] for batch, _ in batched(made, limits) for part in batch.parts for row in part.rejected()
    ]
    assert found == [one.offsets[row] for one in made for row in one.rejected]


@FEWER
@given(blocks(), LIMITS)
def test_bytes_and_costs_of_a_batch_are_those_of_its_records(made: list[DecodedBatch], limits: Limits) -> None:
    for batch, _ in batched(made, limits):
        values = [value for part in batch.parts for value in part.block.values[part.start : part.stop]]
        assert batch.bytes == sum(len(value or b"") for value in values)
        records = [one_record(part.block, row) for part in batch.parts for row in range(part.start, part.stop)]
        assert batch.cost == sum(record.cost for record in records)


@FEWER
@given(st.lists(st.sampled_from("adt"), max_size=30), blocks(), LIMITS)
def test_counts_never_drift(steps: list[str], made: list[DecodedBatch], limits: Limits) -> None:
    """However `a`dding, `d`raining and `t`aking are mixed, what is full closes and what is not does not."""
    batcher = Batcher(limits)
    events = size = cost = 0
    for step in steps:
        full = events >= limits.max_events or size >= limits.max_bytes
        full = full or (limits.max_cost is not None and cost >= limits.max_cost)
        if step == "a" and made:
            one = made.pop(0)
            batcher.add(one)
            events += len(one.good)
            size += int((one.ends if one.loads is None else one.loads)[-1])
            cost += 0 if one.costs is None or not len(one.costs) else int(one.costs[-1])
            continue
        batch = batcher.drain() if step == "d" else batcher.take(float("-inf"))
        if step != "d":
            assert (batch is not None) == full
        if batch is not None:
            events -= batch.events
            size -= load(batch)
            cost -= batch.cost


@pytest.mark.parametrize(
    ("kinds", "limits", "now", "reason"),
    [
        ("eee", Limits(3, 1000, 1.0), 5.0, "size"),
        ("eer", Limits(3, 30, 1.0), 5.0, "bytes"),
        ("ee", Limits(3, 1000, 1.0, max_cost=8), 5.0, "cost"),
        ("e", Limits(3, 1000, 1.0), 6.0, "time"),
        ("rt", Limits(3, 1000, 1.0), 6.0, "time"),
    ],
)
def test_batch_says_why_it_was_closed(kinds: str, limits: Limits, now: float, reason: str) -> None:
    batcher = Batcher(limits)
    batcher.add(block(kinds, arrived=5.0, costs=[4] * len(kinds)))
    batch = batcher.take(now)
    assert batch is not None
    assert (batch.reason, batch.closed) == (reason, now)


def test_batch_is_not_closed_before_its_time() -> None:
    batcher = Batcher(Limits(3, 1000, 1.0))
    batcher.add(block("ee", arrived=5.0))
    assert batcher.due() == 6.0
    assert batcher.take(5.999) is None
    assert batcher.take(6.0) is not None


def test_batch_crosses_blocks_and_keeps_the_oldest_time() -> None:
    batcher = Batcher(Limits(3, 1000, 1.0))
    batcher.add(block("ee", arrived=5.0))
    batcher.add(block("ee", 2, arrived=5.5))
    batch = batcher.take(5.5)
    assert batch is not None
    assert offsets(batch) == [0, 1, 2]
    assert batch.arrived == 5.0
    assert batcher.due() == 6.5
    np.testing.assert_array_equal(batch.tensors()["x"], [[0], [1], [2]])


@pytest.mark.parametrize("places", [[0, 1, 2, 3], [0, 0, 1, 1], [1, 0, 1, 0]], ids=str)
def test_batch_crosses_the_partitions_of_a_block(places: list[int]) -> None:
    batcher = Batcher(Limits(4, 1000, 1.0))
    batcher.add(block("eeee", places=places))
    batch = batcher.take(0.0)
    assert batch is not None
    assert (offsets(batch), batch.reason) == ([0, 1, 2, 3], "size")
    (part,) = batch.parts
    last = {("in", place): offset + 1 for offset, place in enumerate(places)}
    assert part.next_offsets() == last


def test_record_larger_than_the_limit_is_a_batch_of_its_own() -> None:
    batcher = Batcher(Limits(9, 50, 1.0))
    batcher.add(block("eee", sizes=[10, 500, 10]))
    assert [offsets(batch) for batch in iter(batcher.drain, None)] == [[0], [1], [2]]


def test_event_that_costs_more_than_the_limit_is_a_batch_of_its_own() -> None:
    batcher = Batcher(Limits(9, 1000, 1.0, max_cost=10))
    batcher.add(block("eere", costs=[3, 25, 0, 7]))
    assert [offsets(batch) for batch in iter(batcher.drain, None)] == [[0], [1, 2], [3]]


def test_events_that_cost_nothing_fill_no_budget() -> None:
    batcher = Batcher(Limits(9, 1000, 1.0, max_cost=10))
    batcher.add(block("eee", costs=[0, 10, 0]))
    batcher.add(block("ee", 3))
    assert [offsets(batch) for batch in iter(batcher.drain, None)] == [[0, 1, 2], [3, 4]]


def test_batch_stays_open_as_long_as_its_window() -> None:
    window = BatchWindow(1.0)
    batcher = Batcher(Limits(3, 1000, 1.0), window=window)
    batcher.add(block("e", arrived=5.0))
    assert batcher.due() == 6.0
    window.note(0.0, 1)
    window.note(5.0, 1)  # nothing came in the second after the first one
    assert batcher.due() == 5.0
    assert batcher.take(5.0) is not None


def test_batch_of_one_block_is_a_view_of_its_tensors() -> None:
    batcher = Batcher(Limits(2, 1000, 1.0))
    whole = block("eeee")
    batcher.add(whole)
    batch = batcher.take(0.0)
    assert batch is not None
    assert np.shares_memory(batch.tensors()["x"], whole.tensors["x"])


def of_topic(topic: str, kinds: str, start: int = 0) -> DecodedBatch:
    return replace(block(kinds, start), partitions={0: (topic, 0)})


def topics(batch: MicroBatch) -> list[tuple[str, int]]:
    """Each part's topic, and how many records it brings."""
    return [(part.block.partition(0)[0], part.stop - part.start) for part in batch.parts]


def test_topics_share_each_batch_by_their_weights() -> None:
    batcher = Batcher(Limits(8, 1 << 20, 1.0), {"much": 3, "little": 1})
    batcher.add(of_topic("little", "e" * 20))
    batcher.add(of_topic("much", "e" * 20))
    shares = Counter[str]()
    for _ in range(3):
        batch = batcher.take(0.0)
        assert batch is not None
        assert batch.events == 8
        for topic, records in topics(batch):
            shares[topic] += records
    assert shares == {"much": 18, "little": 6}


def test_topic_that_is_alone_fills_the_batches() -> None:
    batcher = Batcher(Limits(8, 1 << 20, 1.0), {"much": 3, "little": 1})
    batcher.add(of_topic("little", "e" * 20))
    first = batcher.take(0.0)
    assert first is not None
    assert topics(first) == [("little", 8)]


def test_topic_that_comes_back_has_no_claim_for_the_time_in_which_it_wanted_nothing() -> None:
    batcher = Batcher(Limits(8, 1 << 20, 1.0), {"a": 1, "b": 1})
    batcher.add(of_topic("a", "e" * 8))
    batcher.take(0.0)
    batcher.add(of_topic("b", "e" * 80))
    for _ in range(5):
        batcher.take(0.0)
    batcher.add(of_topic("a", "e" * 80))
    shares = Counter[str]()
    for _ in range(4):
        batch = batcher.take(0.0)
        assert batch is not None
        shares.update(dict(topics(batch)))
    assert shares == {"a": 16, "b": 16}


def test_batches_of_two_topics_that_wait_in_one_queue_keep_the_order_of_arrival() -> None:
    batcher = Batcher(Limits(8, 1 << 20, 1.0))
    for topic, start in (("b", 0), ("a", 3), ("b", 6)):
        batcher.add(of_topic(topic, "eee", start))
    batch = batcher.take(0.0)
    assert batch is not None
    assert topics(batch) == [("b", 3), ("a", 3), ("b", 2)]


def test_window_is_told_when_batches_close_and_not_of_those_that_are_drained() -> None:
    closed: list[float] = []

    class Told(BatchWindow):
        def note_closed(self, now: float) -> None:
            closed.append(now)

    batcher = Batcher(Limits(2, 1 << 20, 1.0), window=Told(1.0))
    batcher.add(block("eee"))
    assert batcher.take(5.0) is not None
    assert batcher.take(5.5) is not None, "its time is over"
    batcher.add(block("e", 3))
    batcher.drain()
    assert closed == [5.0, 5.5]


@FEWER
@given(blocks(), LIMITS, st.integers(2, 5))
def test_batches_taken_together_are_whole_batches_of_one_block_each_within_the_limits(
    made: list[DecodedBatch], limits: Limits, together: int
) -> None:
    batcher = Batcher(limits)
    for one in made:
        batcher.add(one)
    found: list[int] = []
    while batch := batcher.take(made[-1].arrived + limits.max_wait, together):
        found += offsets(batch)
        if batch.events > limits.max_events:
            assert batch.events <= together * limits.max_events
            assert batch.events % limits.max_events == 0
            (rows,) = batch.parts
            for full in full_batches(rows, limits.max_events):
                assert full.load <= limits.max_bytes
                assert limits.max_cost is None or full.cost <= limits.max_cost
    assert found == [offset for one in made for offset in one.offsets.tolist()]


def test_full_batches_of_a_block_are_taken_together() -> None:
    batcher = Batcher(Limits(4, 1000, 1.0))
    for text, start in (("eeeeee", 0), ("e" * 13, 6)):
        batcher.add(block(text, start, arrived=0.0))
    taken = [batcher.take(0.0, 2) for _ in range(4)]
    assert [batch and batch.events for batch in taken] == [4, 4, 8, None], (
        "6 = 4 + 2; the 2 run with 2 of the next block"
    )


@pytest.mark.parametrize(
    ("sizes", "costs"), [([10] * 12, [1] * 12), ([10] * 7 + [11] * 5, None), ([1] * 12, [1] * 7 + [2] * 5)]
)
def test_batches_are_taken_together_up_to_one_that_exceeds_a_limit(sizes: list[int], costs: list[int] | None) -> None:
    batcher = Batcher(Limits(4, 40, 1.0, max_cost=4))
    batcher.add(block("e" * 12, 0, sizes=sizes, costs=costs, arrived=0.0))
    taken = [batch.events for _ in range(2) if (batch := batcher.take(0.0, 3)) is not None]
    assert taken == ([12] if sum(sizes) == 120 else [4, 3])


def test_topics_that_wait_for_their_turns_get_one_batch_at_a_time() -> None:
    batcher = Batcher(Limits(4, 1000, 1.0), {"a": 1.0, "b": 1.0})
    for topic in ("a", "b"):
        batcher.add(replace(block("e" * 12, 0, arrived=0.0), partitions={0: (topic, 0)}))
    assert [batch.events for _ in range(3) if (batch := batcher.take(0.0, 3)) is not None] == [4, 4, 4]
