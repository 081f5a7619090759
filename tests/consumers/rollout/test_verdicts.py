"""What people read of a verdict."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from millstream.consumers.rollout.progress import Evaluation
from millstream.consumers.rollout.steps import CANARY, decided, started
from millstream.consumers.rollout.verdicts import Verdict, closest, estimate_text, interval_text, outcome_word

ACCURACY = Verdict("accuracy", "pass", 0.08468, 0.06179, 0.111, limit=-0.01)
METRICS = (
    Verdict("errors", "pass", 0.0, -0.0049, 0.0049, service=True, limit=-0.005),
    Verdict("latency", "pass", -0.05, -0.2, 0.1, service=True, limit=-0.5),
    Verdict("score_drift", "pass", -0.01, -inf, -0.001, limit=-0.25),
    Verdict("brier", "pass", 0.03, 0.02, 0.04, limit=-0.005),
    ACCURACY,
    *(replace(ACCURACY, segment=f"country={name}") for name in ("DE", "FR", "IT", "ES", "PT")),
)


@pytest.mark.parametrize(
    ("lower", "upper", "told"),
    [
        (-inf, 1.0, "not known yet"),
        (-1.7e5, 1.0, "not known yet"),
        (-0.4, 1.0, "at most 1.4x"),
        (-inf, -0.6, "at least 1.6x"),
        (-0.4, 0.1, "[0.9x, 1.4x]"),
        (None, None, "not known yet"),
    ],
)
def test_latency_is_told_as_a_multiple_of_the_baselines(lower: float | None, upper: float | None, told: str) -> None:
    found = Verdict("latency", "undecided", -0.05, lower, upper, service=True)
    assert (estimate_text(found), interval_text(found)) == ("1.05x", told)


@pytest.mark.parametrize(
    ("lower", "upper", "told"),
    [
        (-inf, inf, "not known yet"),
        (-0.01, inf, "at least -0.01"),
        (-inf, -0.01, "at most -0.01"),
        (0.0, 0.5, "[0, 0.5]"),
    ],
)
def test_only_bounds_that_are_known_are_told(lower: float, upper: float, told: str) -> None:
    assert interval_text(Verdict("score_drift", "pass", -0.02, lower, upper)) == told


def test_segment_that_only_guards_says_what_is_known_of_it() -> None:
    """It passes in each case: nothing holds the promotion."""
    nothing = Verdict("accuracy", "pass", None, -inf, inf, "country=DE")
    assert outcome_word(nothing) == "no data"
    assert outcome_word(replace(nothing, estimate=0.1)) == "undecided"
    assert outcome_word(replace(nothing, estimate=0.1, lower=-0.2, upper=0.3)) == "pass"
    assert outcome_word(Verdict("score_drift", "pass", -0.1, -inf, -0.01)) == "pass"


def test_metric_of_quality_with_the_least_room_decided() -> None:
    assert closest(METRICS).metric == "brier"
    assert closest(METRICS[:2]).metric == "errors"


def test_drift_of_scores_is_not_based_on_labels() -> None:
    drift = replace(METRICS[2], outcome="breach")
    progress = started(CANARY, "delay:2", 0).progress
    back = decided(CANARY, progress, Evaluation(progress.epoch, 1, 0, (*METRICS[:2], drift)))
    assert back.reason == "score_drift is too bad: benefit -0.01, at most -0.001, limit -0.25"
    assert closest(METRICS[:3]).metric == "errors"
    assert outcome_word(Verdict("score_drift", "undecided")) == "undecided"
    assert outcome_word(Verdict("accuracy", "undecided")) == "no data"


def test_reason_is_one_sentence_with_the_figure_the_limit_and_the_counts() -> None:
    progress = started(CANARY, "delay:2", 0).progress
    step = decided(CANARY, progress, Evaluation(progress.epoch, 1, 4712, METRICS))
    assert (step.action, step.reason) == (
        "step",
        "all metrics passed: brier is good enough: benefit +0.03 [0.02, 0.04], limit -0.005; 5 metrics, 4,712 labels",
    )
    bad = tuple(replace(own, outcome="breach") for own in METRICS)
    back = decided(CANARY, progress, Evaluation(progress.epoch, 1, 4712, bad))
    assert (back.action, back.reason) == (
        "rollback",
        "errors is too bad: benefit +0 [-0.0049, 0.0049], limit -0.005; also too bad: latency, score_drift, brier, 6 more",
    )
    back = decided(CANARY, progress, Evaluation(progress.epoch, 1, 563, (METRICS[0], *bad[3:5])))
    assert (
        back.reason == "brier is too bad: benefit +0.03 [0.02, 0.04], limit -0.005; 563 labels; also too bad: accuracy"
    )
    still = tuple(replace(own, outcome="undecided") for own in METRICS[:5])
    hold = decided(CANARY, progress, Evaluation(progress.epoch, 1, 4712, still))
    assert (hold.action, hold.reason) == (
        "hold",
        "score_drift is not decided: benefit -0.01, at most -0.001, limit -0.25; "
        "also not decided: brier, accuracy, errors, 1 more",
    )
