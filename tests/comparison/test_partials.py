"""Partials as they travel, and what is none."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from consumers.comparison.errors import DamagedRecordError
from consumers.comparison.partials import Merge, Partial, most_bytes_of
from inference.estimates import estimate
from inference.evaluation import Columns, Histogram, Summary, summarise
from schemas.comparisons import Pair, Variant

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
    "value", [b"", b"junk", zlib.compress(b""), a_partial().pack()[:-1], zlib.compress(b"\x91" * 9999)]
)
def test_bytes_that_are_no_partial_are_refused(value: bytes) -> None:
    with pytest.raises(DamagedRecordError):
        Partial.unpack(value)


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
        Partial.unpack(packed(whole[0]))


@pytest.mark.parametrize("regression", [True, False])
def test_largest_scores_and_latencies_make_figures_and_no_error(regression: bool) -> None:
    with np.errstate(all="ignore"):
        partial = a_partial(200, [1.7e308, -1.7e308, 5e-324, 0.0, 1.0])
        whole = partial + Partial.unpack(partial.pack())
        assert estimate(whole.summary, regression=regression).agreement == 1.0


def test_sound_bins_that_no_score_makes_are_summed_without_an_error() -> None:
    ends = Histogram(np.array([0, (1 << 21) - 1]), np.array([1, 1]))
    partial = a_partial()
    summary = replace(partial.summary, primary=replace(partial.summary.primary, positive=ends, latency=ends))
    with np.errstate(all="ignore"):
        estimate((partial + Partial.unpack(Partial(summary).pack())).summary, regression=False)


def test_merge_keeps_the_newest_windows() -> None:
    merge = Merge(kept=100, most_windows=10)
    for start in range(0, 50_000, 1000):
        merge.put(start, PAIR, 0, Partial(Summary(events=1)))
    assert len(list(merge.results())) == 50
    assert [start for start, _, _ in merge.forget()] == list(range(0, 40_000, 1000))
    assert merge.forget() == []
