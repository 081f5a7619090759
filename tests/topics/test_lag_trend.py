from __future__ import annotations

import math

import pytest

from millstream.topics.lag import PartitionLag
from millstream.topics.lag_trend import LagTrend, Trend, drain_seconds, drain_text

PLACE = ("events", 0)


def lag(start: int, end: int, messages: int | None = None, partition: int = 0) -> PartitionLag:
    waiting = end - start if messages is None else messages
    return PartitionLag("events", partition, start, start, end, waiting, True, 1.0, 0)


def trend_of(*looks: tuple[float, PartitionLag], window: float = 10) -> Trend | None:
    trend = LagTrend(window)
    for at, look in looks:
        trend.add(at, [look])
    return trend.of(PLACE)


def test_one_look_says_nothing_about_where_it_goes() -> None:
    assert trend_of((0, lag(0, 10))) is None
    assert LagTrend().over([PLACE]) is None


def test_rates_are_what_came_and_went_over_the_window() -> None:
    trend = trend_of((0, lag(0, 100)), (2, lag(20, 160)), (4, lag(40, 220)))
    assert trend == Trend(arrival=30, progress=10, stalled=0)
    assert trend.growth == 20


def test_what_is_older_than_the_window_is_forgotten() -> None:
    busy = [(float(at), lag(100 * at, 100 * at + 50)) for at in range(20)]
    idle = [(float(at), lag(1950, 1950)) for at in range(20, 40)]
    trend = trend_of(*busy, *idle)
    assert trend == Trend(0, 0, 0)


def test_offsets_without_events_are_none() -> None:
    """As many transaction ends as events."""
    trend = trend_of((0, lag(0, 100, 50)), (1, lag(20, 140, 60)))
    assert trend is not None
    assert (trend.arrival, trend.progress) == (20, 10)


def test_stall_is_the_time_without_progress_while_events_wait() -> None:
    looks = [(float(at), lag(10, 20 + at)) for at in range(8)]
    stuck = trend_of((-1, lag(5, 20)), *looks)
    assert stuck is not None
    assert stuck.stalled == 7
    idle = trend_of(*((float(at), lag(10, 10)) for at in range(8)))
    assert idle is not None
    assert idle.stalled == 0


def test_time_in_which_no_broker_answered_is_no_stall() -> None:
    before = [(float(at), lag(10, 20)) for at in range(8)]
    after = [(float(at), lag(10, 20)) for at in range(60, 63)]
    trend = trend_of(*before, *after)
    assert trend is not None
    assert trend.stalled == 2


def test_group_that_was_set_back_has_not_done_less_than_nothing() -> None:
    trend = trend_of((0, lag(50, 100)), (1, lag(0, 100)))
    assert trend == Trend(0, 0, 0)


def test_whole_is_the_sum_and_stalls_only_where_all_do() -> None:
    trend = LagTrend()
    for at in range(3):
        trend.add(at, [lag(at, 10 + at), lag(0, 10, partition=1)])
    assert trend.over([PLACE, ("events", 1)]) == Trend(arrival=1, progress=1, stalled=0)


def test_partition_that_is_gone_is_forgotten() -> None:
    trend = LagTrend()
    trend.add(0, [lag(0, 10)])
    trend.add(1, [])
    trend.add(2, [lag(0, 10)])
    assert trend.of(PLACE) is None


@pytest.mark.parametrize(
    ("messages", "trend", "seconds", "text"),
    [
        (0, None, 0.0, "0 s"),
        (100, None, None, "?"),
        (100, Trend(10, 30, 0), 5.0, "5 s"),
        (100, Trend(30, 30, 0), math.inf, "never"),
        (100, Trend(30, 10, 0), math.inf, "never"),
    ],
)
def test_time_to_drain(messages: int, trend: Trend | None, seconds: float | None, text: str) -> None:
    assert drain_seconds(messages, trend) == seconds
    assert drain_text(seconds) == text
