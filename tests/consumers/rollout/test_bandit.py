"""Bandits: shares follow rewards, never leave the floor, and are the same for the same rewards."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from millstream.consumers.rollout.bandit import UNIT, Arms, BanditSettings, Rewards, best_probabilities, updated
from millstream.consumers.rollout.slots import reallocated, whole
from millstream.pipeline.shares import SLOTS

TWO = BanditSettings(2)
NONE = Rewards(0, 0, 0)


def coins(events: int, hits: int) -> Rewards:
    return Rewards(events, hits, hits)


def test_probability_to_be_best_is_that_of_two_normals() -> None:
    arms = updated(BanditSettings(2, discount=1), Arms.fresh(2), [coins(1000, 100), coins(1000, 120)], [False, False])
    middle = 220 / 2000
    means = [(hits + 2 * middle) / 1002 for hits in (100, 120)]
    variances = [
        (hits - 2 * mean * hits + 1000 * mean**2 + 2) / 1002 / 1002
        for hits, mean in zip((100, 120), means, strict=True)
    ]
    wanted = norm.cdf((means[1] - means[0]) / math.sqrt(sum(variances)))
    assert best_probabilities(TWO, arms)[1] == pytest.approx(wanted, abs=1e-6)
    assert arms.shares[1] == pytest.approx(100 + 9800 * wanted, abs=100)


def test_probabilities_of_four_arms_are_those_of_draws() -> None:
    settings_of_four = BanditSettings(4, discount=1)
    rewards = [coins(400, 40), coins(300, 36), coins(500, 55), coins(100, 9)]
    arms = updated(settings_of_four, Arms.fresh(4), rewards, [False] * 4)
    weights, totals, squares = (np.array(own) for own in (arms.weights, arms.totals, arms.squares))
    means = (totals + 2 * totals.sum() / weights.sum()) / (weights + 2)
    errors = np.sqrt((squares - 2 * means * totals + weights * means**2 + 2) / (weights + 2) / (weights + 2))
    draws = np.random.default_rng(1).normal(means, errors, (200_000, 4)).argmax(1)
    assert best_probabilities(settings_of_four, arms) == pytest.approx(np.bincount(draws) / 200_000, abs=0.005)


def test_better_arm_gets_the_events_and_a_change_turns_it_around() -> None:
    rng = np.random.default_rng(2)
    settings_of_two = BanditSettings(2, floor=500, discount=0.9)
    arms, shares = Arms.fresh(2), []
    for look in range(80):
        rates = (0.10, 0.15) if look < 40 else (0.15, 0.10)
        events = [2000 * own // SLOTS for own in arms.shares]
        arms = updated(
            settings_of_two, arms,
            [coins(count, int(rng.binomial(count, rate))) for count, rate in zip(events, rates, strict=True)],
            [False, False],
        )  # fmt: skip
        shares.append(arms.shares[1])
    assert np.mean(shares[20:40]) > 0.9 * SLOTS
    assert np.mean(shares[60:]) < 0.1 * SLOTS
    assert min(shares) >= 500


def test_events_of_one_key_count_as_few() -> None:
    rewards = [coins(1000, 100), coins(1000, 150)]
    clustered = [Rewards(own.events, own.total, own.squares, 50.0) for own in rewards]
    alone, together = (updated(TWO, Arms.fresh(2), own, [False, False]).shares[1] for own in (rewards, clustered))
    assert alone > together > SLOTS // 2


def test_arm_with_a_breach_gets_nothing_from_now_on() -> None:
    arms = updated(BanditSettings(3), Arms.fresh(3), [NONE] * 3, [False, True, False])
    assert arms.shares[1] == 0
    assert sum(arms.shares) == SLOTS
    after = updated(BanditSettings(3), arms, [coins(10, 0), coins(500, 500), coins(10, 0)], [False] * 3)
    assert after.shares[1] == 0
    assert updated(BanditSettings(3), arms, [NONE] * 3, [True] * 3).shares == (SLOTS, 0, 0)


@settings(max_examples=150)
@given(
    st.integers(2, 5),
    st.lists(
        st.tuples(st.floats(0, 1e6), st.floats(-10, 10), st.floats(0, 10), st.booleans()), min_size=5, max_size=20
    ),
)
def test_shares_are_exact_and_a_restart_changes_nothing(
    count: int, looks: list[tuple[float, float, float, bool]]
) -> None:
    own = BanditSettings(count, floor=UNIT, discount=0.95)
    arms, ranges = Arms.fresh(count), reallocated(whole(), Arms.fresh(count).shares)
    for place, (events, mean, spread, breached) in enumerate(looks):
        arm = place % count
        rewards = [NONE] * count
        rewards[arm] = Rewards(events, events * mean, events * (mean**2 + spread))
        breaches = [breached and other == arm for other in range(count)]
        after = updated(own, arms, rewards, breaches)
        assert after == updated(own, Arms.of(json.loads(json.dumps(asdict(arms)))), rewards, breaches)
        assert sum(after.shares) == SLOTS
        for share, stopped in zip(after.shares, after.stopped, strict=True):
            assert share % UNIT == 0
            assert share == 0 if stopped else share >= UNIT
        ranges = reallocated(ranges, after.shares)
        assert len(ranges) <= 2 * SLOTS // UNIT
        arms = after


@pytest.mark.parametrize(
    "wrong", [{"arms": 1}, {"floor": 50}, {"floor": 150}, {"floor": 6000}, {"discount": 0.0}, {"discount": 1.1}]
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="bandit: expected"):
        BanditSettings(**{"arms": 2} | wrong)  # type: ignore[arg-type]
