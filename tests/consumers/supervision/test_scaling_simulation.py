"""The decision in simulated time, beside plain scaling by lag: what docs/scaling.md says of it holds."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from benchmarks.scaling_simulation import LagThreshold, Load, Ours, Run, World, loads, simulate
from millstream.consumers.supervision.scaling import Policy

WORLD = World()
POLICY = Policy(min_workers=1, max_workers=12, catch_up=30, scale_down_after=120, in_flight=100_000)
LOADS = {load.name: load for load in loads(WORLD)}
ALL_CAN_BE_KEPT_UP_WITH = ("step", "ramp", "spike", "daily", "stuck", "flapping")


@cache
def ours(name: str) -> Run:
    return simulate(WORLD, LOADS[name], Ours(POLICY))


@cache
def by_lag(name: str) -> Run:
    """Scaled by lag with the same target: a worker for each backlog that it would work off in the catch-up time."""
    return simulate(WORLD, LOADS[name], LagThreshold(POLICY, POLICY.catch_up * WORLD.rate))


def test_simulation_loses_and_makes_no_events() -> None:
    """With a fixed size that has too little to do nothing waits; with too much, exactly what it can't do."""
    even = np.full(WORLD.partitions, 1.0 / WORLD.partitions)
    quiet = replace(WORLD, noise=0.0)
    idle = simulate(quiet, Load("idle", "", 300, lambda _: even * 500), lambda look: look.workers)
    assert (idle.worst, set(idle.workers), idle.worker_minutes) == (0, {1}, 5)
    late = simulate(quiet, Load("late", "", 300, lambda _: even * 1500), lambda look: look.workers)
    # After 300 s 450,000 have come and 300,000 are done: the oldest that waits came in second 200.
    assert late.lag_seconds[-1] == pytest.approx(100, abs=2)


@pytest.mark.parametrize("name", ALL_CAN_BE_KEPT_UP_WITH)
def test_no_event_is_older_than_the_target(name: str) -> None:
    assert ours(name).over(POLICY.catch_up) == 0


@pytest.mark.parametrize("name", LOADS)
def test_size_changes_seldom(name: str) -> None:
    assert ours(name).rebalances <= by_lag(name).rebalances


@pytest.mark.parametrize("name", ["step", "ramp", "daily", "flapping", "spike"])
def test_lag_scaling_with_the_same_target_is_late(name: str) -> None:
    assert by_lag(name).over(POLICY.catch_up) > 0


def test_steady_load_changes_nothing() -> None:
    sizes = ours("step").workers
    assert len(set(sizes[1200:])) == 1


def test_flapping_load_does_not_flap_the_size() -> None:
    assert ours("flapping").rebalances <= 2


def test_stuck_partition_brings_no_workers() -> None:
    sizes = ours("stuck").workers
    assert max(sizes[600:]) <= max(sizes[:600])
    assert max(by_lag("stuck").workers) == POLICY.max_workers


def test_hot_partition_brings_only_workers_that_help() -> None:
    assert max(ours("skewed").workers) == 2
    assert max(by_lag("skewed").workers) == POLICY.max_workers
