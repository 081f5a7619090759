"""How many requests are sent at a time: simulated servers of several kinds."""

from collections.abc import Callable
from heapq import heappop, heappush

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.consumers.execute.concurrency_limit import FIRST, MOST, ConcurrencyLimit

Latency = Callable[[int, float], float]
"""Seconds that a request takes: by the number in flight, and the time."""


def simulated(limit: ConcurrencyLimit, latency: Latency, until: float, demand: int = 10_000) -> list[int]:
    """Send as many requests as the limit lets, up to `demand` at a time. Returns the limits at each answer."""
    now, flying, sizes = 0.0, list[tuple[float, float]](), list[int]()
    while now < until:
        while len(flying) < min(limit.size, demand):
            heappush(flying, (now + latency(len(flying) + 1, now), now))
        now, sent = heappop(flying)
        limit.answered(sent, now, len(flying) + 1)
        sizes.append(limit.size)
    return sizes


def serial(seconds: float) -> Latency:
    """One request at a time: others wait."""
    return lambda flying, _now: seconds * flying


def parallel(seconds: float, width: int) -> Latency:
    """So many requests at a time."""
    return lambda flying, _now: seconds * max(1.0, flying / width)


def test_limit_of_a_server_that_works_on_one_request_at_a_time_stays_small() -> None:
    sizes = simulated(ConcurrencyLimit(), serial(0.1), 1000)
    assert max(sizes[len(sizes) // 2 :]) <= 8


@pytest.mark.parametrize("width", [16, 100])
def test_limit_finds_how_many_requests_a_server_works_on(width: int) -> None:
    sizes = simulated(ConcurrencyLimit(), parallel(0.1, width), 100)
    settled = sorted(sizes[len(sizes) // 2 :])
    assert width <= settled[len(settled) // 2] <= 5 * width
    assert settled[len(settled) // 100] >= width / 2 or width == 16  # but for when the lowest latency is measured


def test_limit_follows_a_server_that_gets_slower_for_good() -> None:
    """The lowest latency of before doesn't count for ever."""
    sizes = simulated(ConcurrencyLimit(), lambda flying, now: (0.1 if now < 50 else 1.0) * max(1.0, flying / 50), 3000)
    assert sorted(sizes[-1000:])[500] >= 50


def test_limit_does_not_grow_without_demand() -> None:
    assert max(simulated(ConcurrencyLimit(), parallel(0.1, 1000), 100, demand=4)) == FIRST


def test_limit_never_exceeds_the_largest() -> None:
    assert max(simulated(ConcurrencyLimit(), lambda _flying, _now: 0.01, 20)) == MOST


def test_server_that_refuses_is_sent_half_as_many_once_a_round() -> None:
    limit = ConcurrencyLimit()
    simulated(limit, parallel(0.1, 64), 100)
    before = limit.size
    for _ in range(10):
        limit.throttled(100.5, 101.0)
    assert limit.size == pytest.approx(before / 2, abs=1)
    limit.throttled(101.5, 102.0)
    assert limit.size == pytest.approx(before / 4, abs=1)


@given(st.integers(1, 500), st.lists(st.tuples(st.booleans(), st.floats(0, 10)), max_size=50))
def test_fixed_limit_stays(fixed: int, events: list[tuple[bool, float]]) -> None:
    limit = ConcurrencyLimit(fixed)
    for number, (throttled, seconds) in enumerate(events):
        sent = float(number)
        if throttled:
            limit.throttled(sent, sent + seconds)
        else:
            limit.answered(sent, sent + seconds, fixed)
    assert limit.size == fixed


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 100), st.integers(1, 600)), max_size=300))
def test_limit_is_always_from_one_to_the_largest(events: list[tuple[bool, float, int]]) -> None:
    limit, now = ConcurrencyLimit(), 0.0
    for throttled, seconds, flying in events:
        sent, now = now, now + seconds
        if throttled:
            limit.throttled(sent, now)
        else:
            limit.answered(sent, now, flying)
        assert 1 <= limit.size <= MOST
