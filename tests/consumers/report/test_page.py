"""The page of a report: what it shows for each task, and that it is whole without anything else."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from millstream.consumers.report.page import page, shown
from millstream.consumers.report.part import (
    Part,
    Side,
    agreement_over_time,
    difference_over_time,
    figure,
    largest,
)
from millstream.consumers.report.plots import roc
from millstream.inference.class_evaluation import Answers, summarise_classes
from millstream.inference.evaluation import Columns, Summary, summarise
from tests.comparison.scene import exact_auc
from tests.consumers.report.page_reader import PageReader

if TYPE_CHECKING:
    from millstream.inference.evaluation import Task

HOUR = 3_600_000
EVENTS = 2000


def columns(seed: int, *, labels: bool = True, scale: float = 1.0) -> Columns:
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=EVENTS)
    first, second = (1 / (1 + np.exp(-(truth + noise * rng.normal(size=EVENTS)))) for noise in (1.5, 0.3))
    return Columns(
        primary=scale * first,
        shadow=scale * second,
        agreed=((first >= 0.5) == (second >= 0.5)).astype(np.int8),
        failed=np.zeros(EVENTS, np.bool_),
        primary_ms=rng.gamma(2, 5, EVENTS),
        shadow_ms=rng.gamma(2, 9, EVENTS),
        labels=(truth > 0).astype(float) if labels else np.full(EVENTS, math.nan),
    )


def summary(task: Task, seed: int, **options: Any) -> Summary:
    found = columns(seed, **options)
    if task == "regression":
        return summarise(replace(found, labels=10 * found.shadow + 1), 0.5)
    if task == "classification":
        return summarise(found, 0.5)
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 3, EVENTS)
    sides = []
    for right in (0.5, 0.8):
        classes = np.where(rng.random(EVENTS) < right, truth, (truth + 1) % 3).astype(np.int32)
        probabilities = np.full((EVENTS, 3), 0.1, np.float32)
        probabilities[np.arange(EVENTS), classes] = 0.8
        sides.append(Answers(classes, probabilities))
    return summarise_classes(replace(found, labels=truth.astype(float)), *sides)


def part(task: Task, sides: int = 2, **options: Any) -> Part:
    windows = {seed * HOUR: summary(task, seed, **options) for seed in range(4)}
    whole = sum(windows.values(), Summary())
    named = (Side("version 1", "in the workers"), Side("version 2", "of the model"))
    return Part(
        title="Shadow: version 2",
        verdict="Version 2 is better: AUC +0.1 [0.05, 0.15], 8,000 labels",
        basis=[("events", "topic, yesterday"), ("labels", "8,000")],
        task=task,
        sides=named[:sides],
        whole=whole,
        windows=windows,
        width=HOUR,
        segments={"north": windows[0], "<south>": windows[HOUR]},
        segment_field="region",
    )


@pytest.mark.parametrize("sides", [1, 2])
@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("classification", ["ROC", "Calibration", "AUC of each window"]),
        ("multiclass", ["Accuracy of each window"]),
        ("regression", ["Mean absolute error of each window"]),
    ],
)
def test_page_is_whole_and_shows_the_verdict_first(task: Task, expected: list[str], sides: int) -> None:
    found = PageReader(page("p: models <in> service", ["Written by a test."], [shown(part(task, sides))]))
    assert found.headings[0] == "p: models <in> service"
    assert found.text[:4] == [
        "p: models <in> service",  # of the window
        "p: models <in> service",
        "Written by a test.",
        "Version 2 is better: AUC +0.1 [0.05, 0.15], 8,000 labels",
    ]
    plots = [*expected, "Distribution of scores", "Mean score of each window", "Latency"]
    if sides == 2:
        plots += ["Agreement in each window", "Agreement, of all events so far"]
    assert set(plots) <= set(found.plots)
    assert any("by region" in plot for plot in found.plots)
    assert "<south> (2,000)" in found.text
    assert "version 1" in found.text


def test_page_without_labels_shows_what_there_is() -> None:
    found = PageReader(page("p", [], [shown(part("classification", labels=False))]))
    assert "Agreement, of all events so far" in found.plots
    assert not {"ROC", "Calibration", "AUC of each window"} & set(found.plots)
    empty = Part("t", "Nothing yet", [], "classification", (Side("a", ""), Side("b", "")), Summary(), {}, HOUR)
    assert PageReader(page("p", [], [shown(empty)])).plots == []


def test_scores_beyond_0_to_1_have_no_calibration() -> None:
    found = PageReader(page("p", [], [shown(part("classification", scale=40.0))]))
    assert "ROC" in found.plots
    assert "Calibration" not in found.plots


def test_roc_encloses_the_auc() -> None:
    data = columns(7)
    scores = summarise(data, 0.5).primary
    curve = roc(scores.positive, scores.negative)
    assert curve is not None
    false, true = curve
    assert (false[0], true[0], false[-1], true[-1]) == (0.0, 0.0, 1.0, 1.0)
    assert np.trapezoid(true, false) == pytest.approx(exact_auc(data.primary, data.labels > 0), abs=2e-3)


def test_figures_of_one_model_have_their_interval() -> None:
    data = columns(3)
    value, low, high = figure(summarise(data, 0.5).shadow, "classification")
    assert value == pytest.approx(exact_auc(data.shadow, data.labels > 0), abs=5e-4)
    rng = np.random.default_rng(1)
    again = []
    for _ in range(100):  # the bootstrap's spread
        rows = rng.integers(0, EVENTS, EVENTS)
        again.append(exact_auc(data.shadow[rows], data.labels[rows] > 0))
    assert (high - low) / (2 * 1.96) == pytest.approx(np.std(again), rel=0.25)
    assert math.isnan(figure(Summary().primary, "classification").value)


def test_sequences_hold_the_whole_at_their_end_and_get_narrower() -> None:
    found = part("classification")
    agreement = agreement_over_time(found)
    assert agreement.middles[-1] == found.whole.agreed / found.whole.answered
    assert agreement.times == [HOUR, 2 * HOUR, 3 * HOUR, 4 * HOUR]
    for loss in ("log_loss", "wrong"):
        difference = difference_over_time(found, loss)
        widths = [high - low for low, high in zip(difference.lows, difference.highs, strict=True)]
        assert widths == sorted(widths, reverse=True)
        assert difference.highs[-1] < 0  # version 2 was made better


def test_smallest_segments_are_shown_together() -> None:
    one = summary("classification", 1)
    found = largest({"a": one, "b": one + one, "c": one}, 1)
    assert [(name, each.events) for name, each in found.items()] == [("b", 2 * EVENTS), ("2 others", 2 * EVENTS)]
