"""The verdict on models of several classes, from the results of all windows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from millstream.consumers.comparison.partials import Partial
from millstream.consumers.comparison.results import result
from millstream.consumers.comparison.totals import totals
from millstream.consumers.comparison.verdict import verdict
from millstream.inference.class_evaluation import summarise_classes
from millstream.schemas.comparisons import Pair, Variant
from tests.inference.class_events import ClassEvents, part

PAIR = Pair(Variant("m", 1, "primary"), Variant("m", 2))


def window(events: ClassEvents, *, failed: int = 0) -> dict[str, Any]:
    """The result of a window; the shadow fails on the first events, `failed` of them."""
    columns = replace(events.columns(), failed=np.arange(len(events.labels)) < failed)
    summary = summarise_classes(columns, events.primary, events.shadow)
    return result(0, 1, PAIR, Partial(summary), pipeline="p", task="multiclass")


def test_better_shadow_is_told_with_accuracy_interval_and_labels() -> None:
    rows = [window(ClassEvents.make(750, shadow=0.1, primary=2))]
    found = verdict(rows, "multiclass")
    assert found.outcome == "better"
    assert found.words("version 2").startswith("version 2 is better: accuracy +0.")
    assert found.words("version 2").endswith("], 750 paired events")
    assert verdict(rows, "multiclass", "log_loss").outcome == "better"  # less is better


def test_worse_shadow_is_not_better() -> None:
    assert (
        verdict([window(ClassEvents.make(750, shadow=3))], "multiclass")
        .words("v")
        .startswith("v is worse: accuracy -0.")
    )


def test_interval_is_that_of_agresti_and_min_over_the_events_of_all_windows() -> None:
    events = ClassEvents.make(200, seed=4)
    right = [answers.classes == events.labels for answers in (events.primary, events.shadow)]
    shadow, primary = (right[1] & ~right[0]).sum() + 0.5, (right[0] & ~right[1]).sum() + 0.5
    middle = (shadow - primary) / 202
    half = 1.96 * np.sqrt(shadow + primary - (shadow - primary) ** 2 / 202) / 202
    found = verdict(
        [window(part(events, 0, 1)), window(part(events, 1, 90)), window(part(events, 90, 200))], "multiclass"
    )
    assert found.low == pytest.approx(middle - half)
    assert found.high == pytest.approx(middle + half)
    assert found.difference == pytest.approx(right[1].mean() - right[0].mean())


def test_models_that_are_always_right_are_not_decided_by_an_interval_without_width() -> None:
    events = ClassEvents.make(100)
    same = ClassEvents(events.primary, events.primary, events.primary.classes.astype(np.int64))
    found = verdict([window(same)], "multiclass")
    assert found.outcome == "not decided yet"
    assert "the difference is too small for these labels: accuracy +0.000 [-0.0" in found.words("version 2")


@pytest.mark.parametrize("size", [40, 150])
@pytest.mark.parametrize("noise", [0.1, 1.0])
def test_interval_holds_the_true_difference_19_times_of_20(size: int, noise: float) -> None:
    """Both models are equally good, so the true difference is 0."""
    trials = 400
    held = sum(
        verdict([window(ClassEvents.make(size, seed=trial, primary=noise, shadow=noise))], "multiclass").outcome
        == "not decided yet"
        for trial in range(trials)
    )
    assert 0.92 <= held / trials <= 1


def test_interval_of_the_log_loss_holds_the_true_difference_19_times_of_20() -> None:
    trials = 400
    held = sum(
        verdict([window(ClassEvents.make(100, seed=trial))], "multiclass", "log_loss").outcome == "not decided yet"
        for trial in range(trials)
    )
    assert 0.92 <= held / trials <= 0.98


def test_totals_are_the_figures_over_the_events_of_all_windows() -> None:
    events = ClassEvents.make(300)
    whole, found = window(events), totals([window(part(events, 0, 100)), window(part(events, 100, 300))])
    assert (found.labelled, found.labels) == (300, 300)
    for side, figures in (("primary", found.primary), ("shadow", found.shadow)):
        assert figures == {name: pytest.approx(whole[side][name]) for name in ("accuracy", "log_loss")}


def test_events_that_the_shadow_failed_on_are_labelled_but_not_paired() -> None:
    """All counts of paired events agree, and the figures of both models are computed from the same events."""
    events = ClassEvents.make(300)
    halves = [window(part(events, 0, 100), failed=7), window(part(events, 100, 300))]
    found = totals(halves)
    assert [(row["labelled"], row["paired"]) for row in halves] == [(100, 93), (200, 200)]
    assert (found.labelled, found.labels, verdict(halves, "multiclass").labels) == (300, 293, 293)
    assert found.primary["accuracy"] == pytest.approx((events.primary.classes == events.labels)[7:].mean())


def test_few_labels_and_hostile_figures_decide_nothing() -> None:
    row = window(ClassEvents.make(100))
    assert verdict([window(ClassEvents.make(20))], "multiclass").more_labels == 10
    for odd in (
        {"paired": -5},
        {"paired": 2**60},
        {"accuracy_difference": float("nan")},
        {"accuracy_difference": 1e300},
    ):
        assert verdict([{**row, **odd}], "multiclass").labels == 0
    for error in (float("nan"), float("inf"), -1.0):
        assert verdict([{**row, "accuracy_difference_error": error}], "multiclass").labels == 0
