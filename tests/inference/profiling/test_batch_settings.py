"""The settings that are chosen from measured batch sizes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.inference.profiling.batch_settings import NEARLY_BEST, STAGES_SHARE, choose, rate_in_worker
from millstream.inference.profiling.size_profile import SizeProfile


def profile(events: int, rate: float, p99: float, threads: int = 1) -> SizeProfile:
    return SizeProfile(f"{threads}", events, 100, rate, p99 / 2, p99, None, None, None)


@st.composite
def measured(draw: st.DrawFn, threads: int = 1) -> list[SizeProfile]:
    sizes = sorted(draw(st.sets(st.integers(1, 4096), min_size=1, max_size=8)))
    numbers = st.floats(1e-5, 1.0)
    return [profile(size, draw(st.floats(1.0, 1e7)), draw(numbers), threads) for size in sizes]


targets = st.floats(1e-4, 5.0)
reserves = st.floats(0, 0.1)


@given(measured(), targets, reserves)
def test_events_meet_the_target_that_is_said_to_be_met(
    profiles: list[SizeProfile], target: float, reserve: float
) -> None:
    chosen = choose([profiles], target, reserve)
    assert chosen.profile in profiles
    budget = target * (1 - STAGES_SHARE) - reserve
    assert chosen.meets_target == any(2 * each.p99 <= budget for each in profiles)
    if chosen.meets_target:
        assert chosen.max_wait is not None
        assert 2 * chosen.profile.p99 <= budget
        assert chosen.profile.p99 + chosen.max_wait <= budget + 1e-9
        assert 0 <= chosen.max_wait <= target / 2 + 1e-9


@given(measured(), targets)
def test_no_fitting_size_is_much_faster(profiles: list[SizeProfile], target: float) -> None:
    chosen = choose([profiles], target)
    fitting = [each for each in profiles if 2 * each.p99 <= target * (1 - STAGES_SHARE)]
    if fitting:
        assert rate_in_worker(chosen.profile) >= NEARLY_BEST * max(map(rate_in_worker, fitting))
    else:
        assert chosen.profile.p99 == min(each.p99 for each in profiles)
        assert chosen.max_wait == 0


@given(measured(), targets, targets)
def test_looser_target_is_not_met_worse(profiles: list[SizeProfile], one: float, other: float) -> None:
    tight, loose = choose([profiles], min(one, other)), choose([profiles], max(one, other))
    assert loose.meets_target >= tight.meets_target
    if tight.meets_target:
        assert rate_in_worker(loose.profile) >= NEARLY_BEST * rate_in_worker(tight.profile)


@given(measured(1), measured(4), targets)
def test_more_threads_are_chosen_only_if_one_misses_the_target(
    one: list[SizeProfile], four: list[SizeProfile], target: float
) -> None:
    chosen = choose([one, four], target)
    if choose([one], target).meets_target:
        assert chosen == choose([one], target)
    elif chosen.meets_target:
        assert chosen.profile in four


@given(measured())
def test_without_target_only_throughput_counts(profiles: list[SizeProfile]) -> None:
    chosen = choose([profiles], None)
    assert chosen.meets_target
    assert chosen.max_wait is None
    assert rate_in_worker(chosen.profile) >= NEARLY_BEST * max(map(rate_in_worker, profiles))


def test_small_batches_cost_the_worker_more() -> None:
    flat = [profile(events, 37_000, events / 37_000) for events in (8, 64, 256)]
    assert choose([flat], None).max_events == 64
    assert choose([flat], 0.002).max_events == 8  # two calls with 64 events take longer


def test_smallest_of_nearly_equal_sizes_is_chosen() -> None:
    profiles = [profile(64, 980, 0.06), profile(128, 1000, 0.1), profile(256, 990, 0.004)]
    assert choose([profiles], None).max_events == 64


@pytest.mark.parametrize(("rates", "advised"), [((100, 200), True), ((200, 201), False), ((200, 100), False)])
def test_larger_batches_are_advised_while_throughput_grows(rates: tuple[float, float], advised: bool) -> None:
    profiles = [profile(128, rates[0], 0.001), profile(256, rates[1], 0.002)]
    assert ("--max-events 512" in choose([profiles], None).reason) == advised


def test_reason_says_where_the_time_of_the_target_goes() -> None:
    chosen = choose([[profile(64, 1000, 0.003)]], 0.02)
    assert chosen.max_events == 64
    assert chosen.max_wait == pytest.approx(0.01)
    assert chosen.reason == (
        "two calls with 64 events take 6 ms (p99), and 4 ms are for the other stages: within 20 ms. "
        "So the first event of a batch may wait 10 ms."
    )


def test_missed_target_names_the_quickest_size() -> None:
    chosen = choose([[profile(1, 100, 0.03), profile(2, 190, 0.05)]], 0.02)
    assert not chosen.meets_target
    assert chosen.max_events == 1
    assert chosen.reason.startswith("no batch size meets 20 ms: two calls with 1 event alone take 60 ms")
