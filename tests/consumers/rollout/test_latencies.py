"""The latency of the slowest events: known values, how often it decides wrongly, and that it decides on a busy machine."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.rollout_latencies import CALLS, DRAWS, LEVELS, QUANTILE, measured
from millstream.consumers.rollout.judging import MetricRule, bounds_of_difference, signs
from millstream.consumers.rollout.latencies import BLOCKS, LEAST_BLOCKS, blocks_of, compared, slowest


def test_equal_versions_are_decided_and_slower_ones_do_not_pass() -> None:
    for name in DRAWS:
        row = measured(name, 8, 16)
        assert row["passed"] == 8, name
        assert row["calls"] <= CALLS / 2, name
        assert row["slower_passed"] + row["slower_breached"] <= 1, name  # the level is 1 %
        assert row["twice_passed"] == 0, name
    assert measured("even", 8, 0)["twice_breached"] == 8


def test_mean_is_the_one_above_the_quantile() -> None:
    ms = np.exp(np.arange(1.0, 101))
    found = slowest(np.arange(100) % 7, np.random.default_rng(1).permutation(ms), QUANTILE)
    assert found.logarithms.mean == pytest.approx(np.mean(np.arange(81, 101)), abs=1e-9)
    assert slowest(np.arange(100) % 7, ms, 0.0).logarithms.mean == pytest.approx(np.log(ms).mean())


def test_what_both_share_in_a_block_cancels_out() -> None:
    """The machine is ten times slower in every other block: the latencies vary much, their difference doesn't."""
    rng = np.random.default_rng(2)
    blocks = np.repeat(np.arange(BLOCKS), 20)
    slow = np.where(blocks % 2, 10.0, 1.0)
    sides = [slowest(blocks, slow * np.exp(0.1 * rng.standard_normal(len(blocks))), 0.0) for _ in range(2)]
    alone = sum(float(own.logarithms.variance) for own in sides)
    assert float(compared(*sides).variance) < alone / 100


def test_slow_events_in_few_blocks_decide_nothing() -> None:
    blocks = np.repeat(np.arange(BLOCKS), 50)
    ms = np.where(blocks < LEAST_BLOCKS - 2, 10.0, 1.0)
    found = compared(slowest(blocks, ms, 0.9), slowest(blocks, ms, 0.9))
    assert found.effective == LEAST_BLOCKS - 2


@pytest.mark.parametrize("span", [0, 1, 127, 128, 129, 3_600_000])
def test_blocks_cover_the_time_of_both(span: int) -> None:
    baseline, candidate = blocks_of(np.array([5, 5 + span]), np.array([5, 5 + span // 2]))
    assert baseline[0] == candidate[0] == 0
    assert min(span, BLOCKS // 2 - 1) <= baseline[1] < BLOCKS
    assert baseline[1] // 2 - 1 <= candidate[1] <= baseline[1]


def test_sides_one_after_the_other_have_blocks_of_their_own() -> None:
    """Otherwise, the candidate's first minutes after many hours of the baseline's would be a single block."""
    hour = 3_600_000
    baseline, candidate = blocks_of(np.arange(0, 10 * hour, 1000), np.arange(11 * hour, 11 * hour + 60_000, 100))
    assert baseline.min() == 0
    assert BLOCKS // 2 <= len(np.unique(baseline)) <= baseline.max() + 1 <= BLOCKS <= candidate.min()
    assert len(np.unique(candidate)) >= BLOCKS // 2


def test_side_without_events_decides_nothing() -> None:
    nothing = slowest(np.empty(0, np.int64), np.empty(0), QUANTILE)
    some = slowest(np.arange(100), np.arange(1.0, 101), QUANTILE)
    rule = MetricRule("latency", "lower", 0.4, least_clusters=LEAST_BLOCKS)
    for sides in ((nothing, some), (some, nothing), (nothing, nothing)):
        assert signs(rule, bounds_of_difference(rule, compared(*sides), LEVELS)) == 0
