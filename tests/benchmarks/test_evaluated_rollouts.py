"""A small form of the simulation: the evaluator and autopilot decide on records as the pure rules do on the events."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from benchmarks.evaluated_rollouts import CASES, Case, Run, load, simulated, summary
from benchmarks.rollout_events import World
from benchmarks.rollouts import through_the_evaluator

if TYPE_CHECKING:
    from millstream.pipeline.pipeline import Pipeline


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    return load(tmp_path_factory.mktemp("pipeline"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_evaluator_decides_as_the_pure_rules_do(pipeline: Pipeline, case: Case) -> None:
    run = simulated(pipeline, case, 7, events=200, looks=3)
    assert run.different == ()
    assert run.looks <= 3


def test_rollout_that_fails_is_rolled_back(pipeline: Pipeline) -> None:
    run = simulated(pipeline, Case("equal", "", World(errors=0.3), ()), 1, events=300)
    assert (run.state, run.reason in ("errors", "dead_letters"), run.different) == ("rolled_back", True, ())


def test_page_says_how_many_were_promoted_wrongly() -> None:
    run = Run("worse", 0, "rolled_back", 9, 2000, "accuracy", ())
    runs = [run, replace(run, seed=1, state="promoted", reason=""), replace(run, case="equal", state="promoted")]
    page = through_the_evaluator(summary(runs))
    assert any(line.startswith("A promotion is wrong in 2 of these rollouts. 1 were promoted") for line in page)
    assert any(
        line.startswith("| worse | accuracy -10 points | 2 | 1 | 1 | 0 | 9 | 2,000 | accuracy |") for line in page
    )
