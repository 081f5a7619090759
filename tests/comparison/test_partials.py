"""Partials as they travel, and what is none."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from millstream.consumers.comparison.errors import DamagedRecordError
from millstream.consumers.comparison.partials import SILENCE_MS, Merge, Partial, Place, most_bytes_of
from millstream.inference.estimates import estimate
from millstream.inference.evaluation import Columns, Histogram, Summary, Task, summarise
from millstream.schemas.comparisons import Pair, Variant

MOST_BYTES = most_bytes_of(1000)
PAIR = Pair(Variant("m", 1, "primary"), Variant("m", 2))


def a_partial(events: int = 50, scores: Any = None) -> Partial:
    rng = np.random.default_rng(1)
    primary, shadow = (rng.random(events) if scores is None else rng.choice(scores, events) for _ in range(2))
    latency, labels = rng.gamma(2, 3, events), rng.integers(0, 2, events).astype(float)
    columns = Columns(primary, shadow, np.ones(events, np.int8), np.zeros(events, np.bool_), latency, latency, labels)
    return Partial(summarise(columns, 0.5))


def packed(value: Any) -> bytes:
    return zlib.compress(msgspec.msgpack.encode(value))


def plain() -> Any:
    return msgspec.msgpack.decode(zlib.decompress(a_partial().pack()))


def test_largest_partial_of_so_many_events_fits_its_bound() -> None:
    for events in (1, 1000, 20_000):
        partial = a_partial(events)
        size = len(zlib.decompress(partial.pack()))
        assert repr(Partial.unpack(partial.pack(), most_bytes_of(events))) == repr(partial)
        assert size <= most_bytes_of(events)


def test_bomb_is_refused_before_it_is_inflated() -> None:
    import tracemalloc  # noqa: PLC0415

    bomb = zlib.compress(bytes(200_000_000))
    tracemalloc.start()
    with pytest.raises(DamagedRecordError, match="found more"):
        Partial.unpack(bomb, 1_000_000)
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"junk",
        zlib.compress(b""),
        a_partial().pack()[:-1],
        a_partial().pack() + b"\0",
        zlib.compress(b"\x91" * 9999),
    ],
)
def test_bytes_that_are_no_partial_are_refused(value: bytes) -> None:
    with pytest.raises(DamagedRecordError):
        Partial.unpack(value, MOST_BYTES)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ([], 7),
        ([0], []),
        ([1], -1),
        ([1], 2**62),
        ([1], 1.0),
        ([6], 1),
        ([7], -5),
        ([0, 0], -1),
        ([0, 0], "50"),
        ([0, 6, 0], None),
        ([0, 6, 1], [b"x", b""]),
        ([0, 6, 1], [bytes(8), b""]),
        ([0, 6, 1], [bytes(16), bytes(8) * 2]),
        ([0, 6, 1], [np.array([3, 2]).tobytes(), np.array([1, 1]).tobytes()]),
        ([0, 6, 1], [np.array([-1]).tobytes(), np.array([1]).tobytes()]),
        ([0, 6, 1], [np.array([2**62]).tobytes(), np.array([1]).tobytes()]),
        ([0, 6, 1], [np.array([5]).tobytes(), np.array([-1]).tobytes()]),
        ([0, 6, 1], [np.array([5]).tobytes(), np.array([2**62]).tobytes()]),
        ([0, 6, 8], bytes(8)),
        ([0, 6, 9], np.full(4, -1).tobytes()),
    ],
)
def test_partial_with_a_part_that_can_not_be_is_refused(path: list[int], value: Any) -> None:
    whole = [plain()]
    *places, last = [0, *path]
    inner = whole
    for place in places:
        inner = inner[place]
    inner[last] = value
    with pytest.raises(DamagedRecordError):
        Partial.unpack(packed(whole[0]), MOST_BYTES)


@pytest.mark.parametrize("task", ["regression", "classification", "multiclass"])
def test_largest_scores_and_latencies_make_figures_and_no_error(task: Task) -> None:
    with np.errstate(all="ignore"):
        partial = a_partial(200, [1.7e308, -1.7e308, 5e-324, 0.0, 1.0])
        whole = partial + Partial.unpack(partial.pack(), MOST_BYTES)
        assert estimate(whole.summary, task=task).agreement == 1.0


def test_sound_bins_that_no_score_makes_are_summed_without_an_error() -> None:
    ends = Histogram(np.array([0, (1 << 21) - 1]), np.array([1, 1]))
    partial = a_partial()
    summary = replace(partial.summary, primary=replace(partial.summary.primary, positive=ends, latency=ends))
    with np.errstate(all="ignore"):
        estimate((partial + Partial.unpack(Partial(summary).pack(), MOST_BYTES)).summary, task="classification")


def put(merge: Merge, start: int, source: int = 0, deleted: int = 0, pair: Pair = PAIR) -> list[Place]:
    part = Partial(Summary(events=1), deleted=deleted).pack()
    return merge.put(start, pair, source, part, latest=10**6)


def forget(merge: Merge, now: int) -> list[int]:
    """Take all results, and forget; returns the starts of the windows that go, in this order."""
    list(merge.results())
    return list(dict.fromkeys(start for start, _, _ in merge.forget(now)))


def test_merge_keeps_the_newest_windows() -> None:
    merge = Merge(kept=100, most_windows=10, most_bytes=MOST_BYTES, sources=1)
    dropped = [start for number in range(50) for start, _, _ in put(merge, 1000 * number)]
    assert dropped == list(range(0, 30_000, 1000))
    assert [start for start, _, _ in merge.results()] == list(range(30_000, 50_000, 1000))
    assert [start for start, _, _ in merge.forget(0)] == list(range(30_000, 40_000, 1000))
    assert merge.forget(0) == []


def test_window_older_than_all_that_a_full_merge_keeps_goes_itself() -> None:
    merge = Merge(kept=100, most_windows=1, most_bytes=MOST_BYTES, sources=1)
    assert put(merge, 2000) == put(merge, 3000) == []
    assert put(merge, 1000, 3) == [(1000, PAIR, 3)]
    assert [start for start, _, _ in merge.results()] == [2000, 3000]


def test_window_waits_a_while_for_partitions_that_sent_nothing_of_it() -> None:
    merge = Merge(kept=100, most_windows=10, most_bytes=MOST_BYTES, sources=3)
    for source in (0, 1):
        put(merge, 1000, source)
        put(merge, 2000, source)
        put(merge, 3000, source, deleted=2100)
    assert forget(merge, 5000) == []
    assert forget(merge, 5000 + SILENCE_MS - 1) == []
    assert forget(merge, 5000 + SILENCE_MS) == [1000, 2000]
    assert forget(merge, 5000 + 9 * SILENCE_MS) == []


def test_window_waits_for_each_partition_that_sent_something_of_it() -> None:
    merge = Merge(kept=100, most_windows=10, most_bytes=MOST_BYTES, sources=3)
    for source in (0, 1, 2):
        put(merge, 1000, source)
    for source in (0, 1):
        put(merge, 2000, source)
        put(merge, 3000, source, deleted=2100)
    assert forget(merge, 0) == forget(merge, 9 * SILENCE_MS) == []
    put(merge, 2000, 2, deleted=1099)
    assert forget(merge, 9 * SILENCE_MS) == []
    put(merge, 2000, 2, deleted=1100)
    assert forget(merge, 9 * SILENCE_MS) == [1000]


def test_window_waits_for_a_partition_that_sent_something_of_one_of_its_pairs() -> None:
    merge = Merge(kept=100, most_windows=10, most_bytes=MOST_BYTES, sources=2)
    put(merge, 1000, 1)
    put(merge, 1000, 0, pair=Pair(*reversed(PAIR)))
    put(merge, 2000, 0, deleted=1100)
    assert forget(merge, 0) == forget(merge, SILENCE_MS) == []


def test_window_stays_until_its_result_is_taken() -> None:
    merge = Merge(kept=100, most_windows=10, most_bytes=MOST_BYTES, sources=1)
    put(merge, 2000)
    put(merge, 1000, deleted=2100)
    assert merge.forget(0) == []
    assert forget(merge, 0) == [1000, 2000]


def test_part_of_a_window_that_is_gone_is_refused() -> None:
    merge = Merge(kept=100, most_windows=10, most_bytes=MOST_BYTES, sources=2)
    for source in (0, 1):
        put(merge, 1000, source)
        put(merge, 3000, source, deleted=1100)
    assert forget(merge, 0) == [1000]
    for start in (1000, 500):
        assert put(merge, start, 1) == [(start, PAIR, 1)]
    assert put(merge, 2000) == []
    assert [start for start, _, _ in merge.results()] == [2000]


def test_part_of_a_window_that_went_to_make_room_is_refused() -> None:
    merge = Merge(kept=100, most_windows=1, most_bytes=MOST_BYTES, sources=2)
    assert put(merge, 1000) == put(merge, 2000) == []
    assert put(merge, 3000) == [(1000, PAIR, 0)]
    assert forget(merge, 0) == [2000]
    assert put(merge, 1000, 1) == [(1000, PAIR, 1)]
    assert put(merge, 2000, 1) == [(2000, PAIR, 1)]
    assert put(merge, 3000, 1) == []


def test_parts_that_are_too_many_bytes_let_the_oldest_windows_go(monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(Partial(Summary(events=1)).pack())
    monkeypatch.setattr("millstream.consumers.comparison.partials.MAX_PART_BYTES", 4 * size)
    merge = Merge(kept=100, most_windows=10, most_bytes=MOST_BYTES, sources=1)
    for _ in range(9):  # a part in place of an older one takes no more
        assert [put(merge, 1000, source) for source in range(3)] == [[], [], []]
    assert put(merge, 2000) == []
    assert put(merge, 2000, 1) == [(1000, PAIR, 0), (1000, PAIR, 1), (1000, PAIR, 2)]
    assert [(start, whole.summary.events) for start, _, whole in merge.results()] == [(2000, 2)]


def test_parts_that_inflate_to_gigabytes_take_little_memory_until_the_next_update() -> None:
    import tracemalloc  # noqa: PLC0415

    bins = np.arange(100_000)
    sparse = Histogram(bins, np.ones(len(bins), np.int64))
    summary = Summary(events=1, difference=sparse, joint_unlabelled=sparse)
    part = Partial(summary).pack()
    merge = Merge(kept=100, most_windows=100, most_bytes=most_bytes_of(200_000), sources=1)
    tracemalloc.start()
    for start in range(50):  # 160 MB as objects
        merge.put(start, PAIR, 0, part, latest=0)
    assert tracemalloc.get_traced_memory()[1] < 30_000_000
    tracemalloc.stop()
