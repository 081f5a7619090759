"""The window in simulated time, beside fixed ones: what docs/batching.md says of it holds."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from benchmarks.batching_simulation import POLICIES, Fixed, Load, Model, Run, loads, poisson, simulate

LOADS = {load.name: load for load in loads()}
TARGETED = "and target_p99 15 ms"
TARGET = 0.015


@cache
def run(load: str, policy: str) -> Run:
    return simulate(Model(), LOADS[load].times, POLICIES[policy]())


def test_simulation_runs_every_event_once_and_one_batch_at_a_time() -> None:
    model = Model(noise=0.0, max_events=4)
    found = simulate(model, poisson(2000, 1), Fixed(0.005))
    assert found.sizes.sum() == len(found.latencies)
    assert found.sizes.max() == 4
    assert (np.diff(found.starts) >= found.busy[:-1] - 1e-9).all()
    assert (found.latencies >= model.batch).all()


def test_events_of_one_batch_wait_for_its_window() -> None:
    [first, second] = simulate(Model(noise=0.0), np.array([1.0, 1.004]), Fixed(0.005)).latencies
    assert (first, second) == pytest.approx((0.005 + 0.00202, 0.001 + 0.00202))


def test_lone_events_wait_for_nobody() -> None:
    assert run("10/s", "max_wait 20 ms").quantile(0.99) < run("10/s", "fixed 5 ms").quantile(0.01)


@pytest.mark.parametrize("load", ["1,000/s", "10,000/s", "40,000/s"])
def test_batches_under_load_are_as_large_as_with_a_fixed_window(load: str) -> None:
    assert run(load, "max_wait 20 ms").sizes.mean() > 0.98 * run(load, "fixed 20 ms").sizes.mean()


def test_bunches_are_whole_and_wait_no_longer() -> None:
    found = run("bunches", "max_wait 20 ms")
    assert found.sizes.mean() > 195
    assert found.quantile(0.5) < run("bunches", "fixed 5 ms").quantile(0.5)


@pytest.mark.parametrize("load", LOADS)
def test_target_is_kept_where_it_can_be(load: str) -> None:
    assert run(load, TARGETED).quantile(0.99) <= TARGET


@pytest.mark.parametrize("load", ["1,000/s", "10,000/s", "steps"])
def test_target_makes_the_executor_no_busier_than_the_shortest_wait(load: str) -> None:
    targeted = run(load, TARGETED)
    assert targeted.busy_share < run(load, "fixed 5 ms").busy_share
    assert run(load, "fixed 20 ms").quantile(0.99) > TARGET


def test_loads_are_the_same_every_time() -> None:
    again: dict[str, Load] = {load.name: load for load in loads()}
    for name, load in LOADS.items():
        np.testing.assert_array_equal(load.times, again[name].times)
