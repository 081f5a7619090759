"""A small form of the simulations: the rules rarely decide wrongly, and rules that would are found out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.rollout_methods import EFFECTS, MARGIN, METHODS, compare, ends, streams, table
from benchmarks.rollout_simulation import World, simulate
from benchmarks.rollouts import CASES, EARLY_LABELS, GUARDED, NO_DIFFERENCE, Case, markdown, row, upper_bound

SMALL = 24


@pytest.mark.parametrize("case", NO_DIFFERENCE, ids=lambda case: case.name)
def test_no_decision_without_a_difference(case: Case) -> None:
    found = simulate(case.world, case.plan, 250, seed=5)
    assert sum(found.ends[end] for end in case.wrong) <= 4


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_canaries_end_as_they_should(case: Case) -> None:
    found = simulate(case.world, case.plan, SMALL, seed=6, batch=SMALL)
    assert sum(found.ends[end] for end in case.wrong) <= 1
    if case.name in ("skewed split", "labels of one variant"):
        assert found.invalid >= SMALL - 1
        assert found.ends["open"] >= SMALL - 1
    else:
        right = "promoted" if case.wrong == ("rolled_back",) else "rolled_back"
        assert found.ends[right] >= (0.6 if "clustered" in case.name else 0.9) * SMALL


def test_rules_without_levels_would_be_found_out() -> None:
    """The same simulation with bounds of 40 %: better versions are found where there are none."""
    plan = replace(NO_DIFFERENCE[0].plan, level=0.4)
    assert simulate(World(), plan, 250, seed=5).ends["concluded"] > 10


def test_few_keys_decide_nothing_by_chance() -> None:
    """300 keys that differ much: a test that takes their events for independent finds a winner in most rollouts."""
    world = World(keys=300, key_spread=0.3)
    assert simulate(world, NO_DIFFERENCE[0].plan, 100, seed=7).ends["concluded"] <= 3
    alone = replace(NO_DIFFERENCE[0].plan, independent=True)
    assert simulate(world, alone, 100, seed=7).ends["concluded"] > 15


def test_segment_that_is_not_judged_lets_a_bad_candidate_pass() -> None:
    world = World(effect=0.07, in_segment=-0.27)
    blind = replace(GUARDED, only_accuracy=True)
    assert simulate(world, blind, SMALL, seed=6, batch=SMALL).ends["promoted"] > 0.9 * SMALL


def test_labels_that_count_when_they_come_make_a_worse_version_win() -> None:
    mature, early = (simulate(case.world, case.plan, SMALL, seed=8, batch=SMALL) for case in EARLY_LABELS)
    assert mature.ends["concluded"] == 0
    assert early.ends["concluded"] > 0.9 * SMALL


def test_same_seed_gives_the_same_streams() -> None:
    first, second, other = (simulate(World(effect=-0.1), GUARDED, 20, seed=seed) for seed in (1, 1, 2))
    assert first == second
    assert first != other


def test_bounds_at_any_time_hold_where_looking_often_does_not() -> None:
    given = streams(-MARGIN, 1000, 3)
    promoted, rolled_back, _ = ends(METHODS["any time (Millstream)"](given))
    assert promoted + rolled_back <= 0.02
    promoted, rolled_back, _ = ends(METHODS["test at every look"](given))
    assert promoted > 0.05
    assert rolled_back > 0.05


def test_worse_candidate_is_rolled_back_by_all_that_look_at_quality() -> None:
    given = streams(-0.15, 200, 4)
    for name, method in METHODS.items():
        promoted, rolled_back, _ = ends(method(given))
        assert promoted == (1 if name == "errors and latency only" else 0)
        assert rolled_back == (0 if name == "errors and latency only" else 1)


def test_rate_that_81_of_10000_allow_is_below_1_percent() -> None:
    assert upper_bound(81, 10_000) < 0.01 < upper_bound(84, 10_000)
    assert upper_bound(3, 3) == 1


def test_page_has_a_row_for_each_case_and_method() -> None:
    cases = [row(case, simulate(case.world, case.plan, 3, seed=1), 3) for case in (CASES[0], CASES[3])]
    methods = compare(20, 1)
    page = markdown(
        {
            "seed": 1, "events_per_s": 1e6, "methods": [], "no_difference": cases[:1], "cases": cases,
            "early_labels": cases[1:],
        }
    )  # fmt: skip
    assert "| worse | accuracy -10 points | 3 | 0 | 3 | 0 | 0 |" in page
    assert len(table(methods, 20)) == 6 + len(EFFECTS) * len(METHODS)
