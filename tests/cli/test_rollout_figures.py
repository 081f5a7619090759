"""What `millstream rollout status` shows of the evaluation."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.console import Console

from millstream.consumers.cli.rollout_figures import (
    figure_lines,
    figures_as_json,
    figures_of,
    mode_lines,
    needed_benefits,
    verdict_table,
)
from millstream.consumers.evaluation.figures import (
    CandidateVerdicts,
    Figure,
    StepFigures,
    VariantFigures,
    WindowFigures,
)
from millstream.consumers.evaluation.topic import Evaluations
from millstream.consumers.rollout.verdicts import Verdict
from tests.consumers.autopilot.desk import MINUTE, START, Desk, pipeline_of

if TYPE_CHECKING:
    from pathlib import Path

METRICS = "metrics: {accuracy: {margin: 0.02, segment_margin: 0.1}, latency: {quantile: 0.95, at_most: 1.5}}"
VERDICTS = (
    Verdict("errors", "pass", 0.0, -0.001, 0.002, service=True),
    Verdict("latency", "undecided", None, -math.inf, 1.0, service=True),
    Verdict("accuracy", "undecided", 0.004, -0.03, 0.04),
    Verdict("accuracy", "breach", -0.3, -0.4, -0.2, segment="country=DE"),
    Verdict("accuracy", "pass", None, -math.inf, math.inf, segment="country=FR"),
    Verdict("accuracy", "pass", 0.01, -math.inf, math.inf, segment="country=IT"),
)
FIGURES = StepFigures(
    "flights", "r1", 1, 1, START, START + MINUTE, 0.25, 3, ("autopilot: hold: 120 of 500 matured labels",), (),
    (CandidateVerdicts("canary", 120, ("the sample ratio is off",), VERDICTS),), (), WindowFigures(None, None, ()), (),
)  # fmt: skip


def text_of(folder: Path) -> list[str]:
    console = Console(width=140)
    with console.capture() as capture:
        console.print(verdict_table(FIGURES, needed_benefits(pipeline_of(folder, METRICS))))
    return [" ".join(line.split()) for line in capture.get().splitlines()]


def test_each_metric_shows_its_estimate_its_interval_and_what_it_needs(tmp_path: Path) -> None:
    assert text_of(tmp_path) == [
        "variant metric verdict benefit interval needed",
        "canary errors pass +0 [-0.001, 0.002] > -0.005",
        "canary latency no data - not known yet < 1.5x",
        "canary accuracy undecided +0.004 [-0.03, 0.04] > -0.02",
        "canary accuracy in country=DE breach (doesn't count) -0.3 [-0.4, -0.2] > -0.1",
        "canary accuracy in country=FR no data - not known yet > -0.1",
        "canary accuracy in country=IT undecided +0.01 not known yet > -0.1",
    ]


def test_lines_say_the_reason_the_labels_and_what_is_still_to_come(tmp_path: Path) -> None:
    desk = Desk(pipeline_of(tmp_path))
    desk.start(2)
    assert figure_lines(FIGURES, desk.record, START + MINUTE + 5000) == [
        "evaluated 5 s ago",
        "found     autopilot: hold: 120 of 500 matured labels",
        "so far    matured labels: 120 (the version with fewer); 25% of the events are not mature; 3 records unread",
        "invalid   the sample ratio is off",
    ]
    desk.command("rollback")
    assert "found     before the rollout ended: autopilot: hold: 120 of 500 matured labels" in figure_lines(
        FIGURES, desk.record, START
    )
    desk.start(2)
    told = replace(FIGURES, notes=("autopilot: hold: the comparison is invalid: the sample ratio is off",))
    assert not any(line.startswith("invalid") for line in figure_lines(told, desk.record, START))
    assert "autopilot doesn't run" in figure_lines(FIGURES, desk.record, START + 9 * MINUTE)[0]
    assert figure_lines("not yet", desk.record, 0) == ["evaluated not yet"]
    assert figure_lines("not yet", replace(desk.record, strategy="manual"), 0) == []


def test_step_that_was_resumed_is_told_to_be_evaluated_anew(tmp_path: Path) -> None:
    desk = Desk(pipeline_of(tmp_path))
    desk.start(2)
    steps: list[StepFigures] = []

    def told(seconds: int) -> object:
        """`seconds`: since the newest change."""
        return figures_of(Evaluations(steps, None), desk.record, desk.now + seconds * 1000)

    assert told(5) == (
        "not since the step began 5 s ago: `millstream autopilot` evaluates it, within a minute after it has started"
    )
    steps.append(replace(FIGURES, rollout=desk.record.rollout))
    assert told(60) == steps[0]
    desk.now += 2 * MINUTE
    desk.command("pause")
    desk.command("resume")
    assert told(5) == (
        "not since the step began 5 s ago: the newest evaluation is of before, 1.08 min ago. `millstream autopilot` evaluates "
        "the step within half a minute, if it runs"
    )


def test_autopilot_that_catches_up_is_not_told_to_be_away(tmp_path: Path) -> None:
    desk = Desk(pipeline_of(tmp_path))
    desk.start(2)
    now = START + 5 * MINUTE
    [line] = [own for own in figure_lines(replace(FIGURES, written=now - 2000), desk.record, now) if "evaluated" in own]
    assert (
        line == "evaluated 2 s ago, with what came until 4 min ago: autopilot runs, and catches up (3 records unread)"
    )
    assert "doesn't run" in figure_lines(replace(FIGURES, written=now - 2 * MINUTE), desk.record, now)[0]
    assert figure_lines(replace(FIGURES, written=START + MINUTE + 10), desk.record, START + MINUTE)[0] == (
        "evaluated just now"
    )


def test_events_that_the_baseline_answers_in_place_of_a_version_are_told(tmp_path: Path) -> None:
    desk = Desk(pipeline_of(tmp_path))
    desk.start(2)
    variants = tuple(VariantFigures(name, "delay", at, 0.5, 100, 1.0) for at, name in ((1, "primary"), (2, "canary")))
    for share, told in ((0.25, 1), (0.0, 0), (None, 0)):
        total = WindowFigures(None, None, (Figure("canary", "errors", None, 100, share),))
        lines = figure_lines(replace(FIGURES, variants=variants, total=total), desk.record, START + MINUTE)
        found = [own for own in lines if own.startswith("fallback")]
        assert len(found) == told
        assert all("answers 25.00% of the events of canary in its place" in own for own in found)


def test_json_has_no_infinity(tmp_path: Path) -> None:
    found = figures_as_json(FIGURES, needed_benefits(pipeline_of(tmp_path, METRICS)))
    [candidate] = json.loads(json.dumps(found, allow_nan=False))["candidates"]
    assert candidate["metrics"][1] == {
        "metric": "latency", "segment": None, "outcome": "no data", "benefit": None, "lower": None, "upper": 1.0,
        "needed": "> -0.5",
    }  # fmt: skip
    assert [own["outcome"] for own in candidate["metrics"][3:]] == ["breach", "no data", "undecided"]
    assert figures_as_json("not yet", {}) == {"problem": "not yet"}


def test_autopilot_that_has_read_another_mode_must_be_restarted(tmp_path: Path) -> None:
    advises, acts = pipeline_of(tmp_path, "mode: advise"), pipeline_of(tmp_path)
    desk = Desk(acts)
    desk.start(2)
    record = desk.record
    advice = replace(FIGURES, notes=("autopilot: would watch: all metrics passed",))
    idle = replace(FIGURES, notes=("autopilot: would start version 3: it is new",))
    for found in (advice, idle):
        [line] = mode_lines(acts, found, record)
        assert "rollout.mode" in line
        assert line.endswith(
            "is act, but autopilot only advised at its newest evaluation: restart `millstream autopilot`"
        )
        assert mode_lines(advises, found, record) == []
        assert mode_lines(acts, found, replace(record, strategy="manual")) == []
    assert mode_lines(acts, FIGURES, record) == []
    assert mode_lines(acts, "not known: away", record) == []
    assert mode_lines(acts, None, None) == []
