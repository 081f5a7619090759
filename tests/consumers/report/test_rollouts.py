"""The section about a rollout: the verdict in words, the tables and the plots."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from millstream.consumers.evaluation.figures import (
    CandidateVerdicts,
    Figure,
    StepFigures,
    VariantFigures,
    WindowFigures,
)
from millstream.consumers.report.page import page
from millstream.consumers.report.rollouts import rollout_sections
from millstream.consumers.rollout.record import RolloutRecord, RolloutVariant
from millstream.consumers.rollout.slots import SlotRange
from millstream.consumers.rollout.verdicts import Verdict
from tests.consumers.report.page_reader import PageReader

HOUR = 3_600_000
GOOD = (
    Verdict("errors", "pass", 0.0, -0.004, 0.004, service=True),
    Verdict("accuracy", "pass", 0.02, 0.01, 0.03),
    Verdict("accuracy", "pass", 0.03, -0.005, float("inf"), segment="country=DE"),
)

BAD = Verdict("accuracy", "breach", -0.2, -0.3, -0.1, segment="country=FR")


def figures(value: float) -> tuple[Figure, ...]:
    return tuple(
        Figure(variant, metric, None, 100, value + (variant == "canary") / 100, error)
        for variant in ("primary", "canary")
        for metric, error in (("events", None), ("accuracy", 0.01), ("latency_p95", None))
    )


def step(*verdicts: Verdict, invalid: tuple[str, ...] = ()) -> StepFigures:
    return StepFigures(
        pipeline="p",
        rollout="p-7",
        revision=9,
        epoch=2,
        since=HOUR,
        now=5 * HOUR,
        unmatured_share=0.25,
        behind=3,
        notes=("only a sample of the keys is kept",),
        variants=(
            VariantFigures("primary", "m", 1, 0.95, 9500, 1.0),
            VariantFigures("canary", "m", 2, 0.05, 500, 0.5),
        ),
        candidates=(CandidateVerdicts("canary", 480, invalid, verdicts),),
        ratios=(),
        total=WindowFigures(None, None, figures(0.8)),
        windows=tuple(WindowFigures(at * HOUR, (at + 1) * HOUR, figures(0.8 + at / 100)) for at in range(1, 4)),
    )


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (step(*GOOD), "all 3 metrics are good enough, 480 labels"),
        (
            step(*GOOD[:2], Verdict("nan", "undecided")),
            "not decided yet: 2 of 3 metrics are good enough, open: nan",
        ),
        (
            step(*GOOD, Verdict("latency", "breach", -1.0, -1.2, -0.8, service=True), invalid=("Too few events.",)),
            "too bad: latency 2x [1.8x, 2.2x]",
        ),
        (
            step(*GOOD, Verdict("accuracy", "pass", None, float("-inf"), float("inf"), segment="country=IT")),
            "all 3 metrics are good enough, 480 labels; nothing is known yet of 1 segment",
        ),
        (
            step(
                *GOOD,
                Verdict("nan", "undecided"),
                Verdict("accuracy", "pass", None, float("-inf"), float("inf"), segment="country=IT"),
            ),
            "not decided yet: 3 of 4 metrics are good enough, open: nan; nothing is known yet of 1 segment",
        ),
        (step(*GOOD, BAD), "too bad: accuracy in country=FR -0.2 [-0.3, -0.1]"),
        (step(*GOOD, BAD, invalid=("The split is off.",)), "the comparison is invalid: The split is off."),
        (step(*GOOD, invalid=("The split is off.",)), "the comparison is invalid: The split is off."),
    ],
)
def test_verdict_says_what_decides(found: StepFigures, said: str) -> None:
    [section] = rollout_sections([found], [])
    assert section.verdict == f"Rollout p-7, step 2: canary (version 2, 5 %): {said}"


def test_section_has_figures_benefits_and_windows() -> None:
    earlier = replace(step(*GOOD), rollout="p-6")
    [section] = rollout_sections([earlier, replace(step(*GOOD), epoch=1), step(*GOOD)], [])
    found = PageReader(page("p", [], [section]))
    assert "Rollout p-7" in found.headings
    assert {"Benefit of canary", "Benefit of canary: accuracy", "accuracy in each window"} <= set(found.plots)
    assert "events in each window" not in found.plots
    assert "+0.03 at least -0.005" in found.text
    assert "0.8100 ± 0.0196" in found.text
    assert "m version 2, 5 %, 500 events, a sample of 50 % of the keys" in found.text
    assert "25.0 % of the events are not mature yet" in found.text


STARTED = RolloutRecord(
    pipeline="p", revision=1, replaces=0, change_id="c1", at=2 * HOUR, by="ann", action="start", reason="trained on May",
    rollout="p-7", strategy="canary", state="running", ranges=(SlotRange(500, 1), SlotRange(9500, 0)),
    variants=(RolloutVariant("primary", "m", 1), RolloutVariant("canary", "m", 2)),
)  # fmt: skip


def change(after: RolloutRecord, action: str, state: str, at: int, **other: Any) -> RolloutRecord:
    revision = after.revision + 1
    return replace(
        after,
        revision=revision,
        replaces=after.revision,
        action=action,
        state=state,
        at=at,
        by="bob",
        reason="why",
        **other,
    )


def test_verdict_says_what_became_of_the_rollout() -> None:
    promoted = change(STARTED, "promote", "promoted", 3 * HOUR)
    back = change(promoted, "rollback", "rolled_back", 4 * HOUR)
    following = change(back, "start", "running", 5 * HOUR, rollout="p-8")
    for changes, became in (
        ([STARTED], "is running; its newest change is of 1970-01-01 02:00:00: start by ann (trained on May). Newest"),
        ([STARTED, promoted], "was promoted on 1970-01-01 03:00:00 by bob (why). Newest"),
        ([STARTED, promoted, back], "was rolled back on 1970-01-01 04:00:00 by bob (why). Newest"),
        (
            [back, following],
            "was rolled back on 1970-01-01 04:00:00 by bob (why), and was followed by the rollout p-8, which",
        ),
        ([following], "was followed by the rollout p-8, which has no evaluation, and is running. Newest"),
    ):
        section = rollout_sections([step(*GOOD)], changes)[-1]
        assert section.verdict.startswith(f"Rollout p-7 {became}")
        shown = [text for name, text in section.basis if name == "change"]
        assert len(shown) == sum(own.rollout == "p-7" for own in changes)
    assert " evaluation, step 2: canary (version 2, 5 %): all 3 metrics" in section.verdict


def test_rollout_without_evaluations_is_shown_by_its_changes() -> None:
    manual = replace(STARTED, strategy="manual")
    promoted = change(manual, "promote", "promoted", 3 * HOUR)
    changes = [manual, promoted, change(promoted, "rollback", "rolled_back", 4 * HOUR, ranges=(SlotRange(10_000, 0),))]
    [section] = rollout_sections([], changes)
    assert section.verdict == (
        "Rollout p-7 was rolled back on 1970-01-01 04:00:00 by bob (why). It has no evaluation by autopilot, so the page has no "
        "figures of each variant"
    )
    found = PageReader(page("p", [], [section]))
    assert {"manual", "m version 1, 100 %", "m version 2, 0 %"} <= set(found.text)
    for said in ("start by ann", "promote by bob", "rollback by bob"):
        assert any(said in text for text in found.text)


def test_newest_rollout_comes_before_the_one_that_was_evaluated() -> None:
    following = replace(STARTED, revision=2, at=5 * HOUR, rollout="p-8")
    newest, evaluated = rollout_sections([step(*GOOD)], [STARTED, following])
    assert newest.verdict.startswith(
        "Rollout p-8 is running; its newest change is of 1970-01-01 05:00:00: start by ann"
    )
    assert evaluated.title == "Rollout p-7"
    assert evaluated.tables


def test_deleted_rollout_is_not_said_to_run() -> None:
    for steps in ([], [step(*GOOD)]):
        [section] = rollout_sections(steps, [STARTED, None])
        assert section.verdict.startswith("Rollout p-7 was running; ")
        assert "and its record was deleted since, so the pipeline file's version answers. " in section.verdict


def test_pipeline_without_changes_and_evaluations_makes_no_section() -> None:
    assert rollout_sections([], []) == rollout_sections([], [None]) == []


def test_foreign_evaluation_does_not_break_the_report() -> None:
    hostile = '"><script>alert(1)</script>\x1b'
    verdict = replace(GOOD[2], metric=hostile, segment=hostile)
    found = replace(step(verdict, invalid=(hostile,)), since=2**62, now=-(2**62), rollout=hostile, notes=(hostile,))
    drawn = page(hostile, [hostile], rollout_sections([found], []))
    assert "<script" not in drawn
    assert f"{2**62} ms" in drawn
