"""A shadow that wins starts a rollout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.consumers.evaluation.settings import shadow_record
from millstream.consumers.evaluation.step_state import Arrivals
from tests.consumers.autopilot.desk import MINUTE, START, UNDECIDED, Desk, pipeline_of

if TYPE_CHECKING:
    from pathlib import Path

SHADOWS = "shadows: [{version: 2}]\ncomparison: {output: score}\n"


def desk_of(folder: Path) -> Desk:
    pipeline = pipeline_of(folder, "start_after_shadow: 30m\nsteps: [5, 50]", SHADOWS)
    [shadow] = pipeline.shadows
    return Desk(pipeline, shadows=(shadow_record(pipeline, shadow, baseline=1, since=0),))


def test_shadow_that_wins_starts_a_canary(tmp_path: Path) -> None:
    desk = desk_of(tmp_path)
    desk.found.arrivals = Arrivals(0)
    assert "no comparison yet" in desk.look().reason
    desk.found.arrivals = Arrivals(1000, START, START + MINUTE)
    assert "the comparison has taken 600 of 1800 s" in desk.look(10).reason
    desk.found.labels = 3
    assert "3 of 500 matured labels" in desk.look(20).reason
    desk.found.labels, desk.found.verdicts = 900, UNDECIDED
    assert "accuracy is not decided" in desk.look().reason
    desk.found = type(desk.found)(arrivals=Arrivals(1000, START, desk.now))
    looked = desk.look()
    assert looked.action == "start"
    assert desk.record.reason.startswith("shadow ")
    assert "(version 2) has won over 30 min: all metrics passed" in desk.record.reason
    assert desk.state == ("running", 5)


def test_another_baseline_is_compared_anew(tmp_path: Path) -> None:
    desk = desk_of(tmp_path)
    desk.found.labels = 3
    desk.look(60)
    desk.start(3)
    desk.command("promote")  # between two looks
    desk.look(60)
    assert len(desk.opened) == 2
    assert desk.opened[0].closed


def test_shadow_that_was_rolled_back_is_not_started_again(tmp_path: Path) -> None:
    desk = desk_of(tmp_path)
    desk.start(2)
    desk.command("rollback")
    desk.found.arrivals = Arrivals(1000, START, START + MINUTE)
    assert "which was tried before" in desk.look(60).reason
