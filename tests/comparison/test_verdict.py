"""The verdict from the results of all windows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_1samp

from millstream.consumers.comparison.partials import Partial
from millstream.consumers.comparison.results import result
from millstream.consumers.comparison.verdict import LEAST_LABELS, verdict
from millstream.inference.evaluation import Columns, Task, summarise
from millstream.schemas.comparisons import Pair, Variant

PAIR = Pair(Variant("m", 1, "primary"), Variant("m", 2))


def a_result(labels: Any, primary: Any, shadow: Any, *, task: Task = "classification") -> dict[str, Any]:
    """The result of a window of these events."""
    zeros = np.zeros(len(labels))
    events = Columns(primary, shadow, zeros.astype(np.int8), zeros > 0, zeros, zeros, labels)
    return result(0, 1, PAIR, Partial(summarise(events, 0.5)), pipeline="p", task=task)


def window(events: int, *, seed: int = 1, primary: float = 1.0, shadow: float = 1.0) -> dict[str, Any]:
    """A window of a classification; each model has an error of this size of its own."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=events)
    labels = (truth + rng.normal(size=events) > 0.5).astype(float)
    scores = [1 / (1 + np.exp(-truth - error * rng.normal(size=events))) for error in (primary, shadow)]
    return a_result(labels, *scores)


def test_clearly_better_shadow_is_told_with_its_interval_and_labels() -> None:
    found = verdict([window(1000, shadow=0.2)], "classification")
    assert (found.outcome, found.labels) == ("better", 1000)
    said = found.words("version 2")
    assert said.startswith("version 2 is better: AUC +0.")
    assert said.endswith("], 1,000 paired events")


def test_worse_shadow_is_not_better() -> None:
    found = verdict([window(1000, shadow=4)], "classification")
    assert found.outcome == "not better"
    assert found.words("version 2").startswith("version 2 is worse: AUC -0.")


def test_undecided_verdict_says_how_many_more_labels_would_decide() -> None:
    found = verdict([window(300, shadow=0.9)], "classification")
    assert found.outcome == "not decided yet"
    assert found.more_labels is not None
    needed = f"about {found.more_labels:,} more compared events with a label are needed"
    assert f"version 2: not decided yet: {needed}" in found.words("version 2")


def test_interval_would_end_at_0_with_so_many_more_labels() -> None:
    found = verdict([window(300, shadow=0.9)], "classification")
    assert found.difference is not None
    assert found.high is not None
    assert found.more_labels is not None
    half = (found.high - found.difference) * np.sqrt(found.labels / (found.labels + found.more_labels))
    assert half == pytest.approx(abs(found.difference), rel=0.1)


def test_equal_models_are_not_better() -> None:
    row = window(200)
    same = {**row, "auc_difference": 0.0, "auc_difference_error": 0.0}
    found = verdict([same], "classification")
    assert found.outcome == "not better"
    assert "both do equally well" in found.words("version 2")


def test_few_labels_decide_nothing() -> None:
    found = verdict([window(LEAST_LABELS - 5, shadow=0.0, primary=5)], "classification")
    assert (found.outcome, found.more_labels) == ("not decided yet", 5)
    assert f"{LEAST_LABELS - 5} paired events so far, at least {LEAST_LABELS} are needed" in found.words("version 2")


def test_no_results_decide_nothing() -> None:
    assert verdict([], "classification").outcome == "not decided yet"


def test_lower_error_of_a_regression_is_better() -> None:
    rng = np.random.default_rng(1)
    labels = rng.normal(100, 20, 300)
    near, far = labels + rng.normal(0, 1, 300), labels + rng.normal(0, 5, 300)
    better = verdict([a_result(labels, far, near, task="regression")], "regression")
    worse = verdict([a_result(labels, near, far, task="regression")], "regression")
    assert better.words("version 2").startswith("version 2 is better: mean absolute error -3.")
    assert worse.outcome == "not better"


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(20, 80), min_size=2, max_size=5))
def test_interval_over_windows_is_that_over_all_events(seed: int, sizes: list[int]) -> None:
    """With equal means in all windows, strata and the whole sample agree."""
    rng = np.random.default_rng(seed)
    errors = [rng.normal(0, 1, size) for size in sizes]  # the shadow's, but for their mean; the primary has none
    parts = [np.stack([0 * error, 0 * error, error - error.mean() + 10]) for error in errors]
    rows = [a_result(*each, task="regression") for each in parts]
    labels, primary, shadow = np.concatenate(parts, axis=1)
    interval = ttest_1samp(np.abs(shadow - labels) - np.abs(primary - labels), 0).confidence_interval(0.95)
    found = verdict(rows, "regression")
    assert found.low is not None
    assert found.high is not None
    assert (found.low + found.high) / 2 == pytest.approx((interval.low + interval.high) / 2, abs=1e-9)
    assert found.high - found.low == pytest.approx(interval.high - interval.low, rel=0.15)


def test_interval_of_many_small_windows_holds_the_true_difference_19_times_of_20() -> None:
    """Both models are equally good, so the true difference is 0."""
    held = 0
    for trial in range(200):
        rows = [window(40, seed=1000 * trial + number) for number in range(6)]
        held += verdict(rows, "classification").outcome == "not decided yet"
    assert 0.9 <= held / 200 <= 0.99


def test_result_of_an_earlier_version_of_millstream_has_no_say() -> None:
    old = {**window(100), "paired": None, "positives": None, "auc_difference": None, "auc_difference_error": None}
    assert verdict([old], "classification").labels == 0
    assert verdict([old, window(1000, shadow=0.2)], "classification").labels == 1000


def test_hostile_figures_decide_nothing() -> None:
    for value in (float("nan"), float("inf"), -float("inf")):
        assert verdict([{**window(100), "auc_difference": value}], "classification").labels == 0
    assert verdict([{**window(100), "positives": 10**9}], "classification").labels == 0
    assert verdict([{**window(100), "auc_difference": 1e308}] * 9, "classification").words("version 2")


@pytest.mark.parametrize(("task", "figure"), [("regression", None), ("classification", "log_loss")])
def test_windows_with_one_label_each_count_together(task: Task, figure: str | None) -> None:
    rng = np.random.default_rng(1)
    labels = (rng.random(100) > 0.5).astype(float)
    primary, shadow = (np.clip(labels + rng.normal(0, error, 100), 0.01, 0.99) for error in (0.4, 0.3))
    rows = [a_result(*(column[at : at + 1] for column in (labels, primary, shadow)), task=task) for at in range(100)]
    whole = a_result(labels, primary, shadow, task=task)
    found, expected = verdict(rows, task, figure), verdict([whole], task, figure)
    assert found.labels == expected.labels == 100
    assert (found.difference, found.low, found.high) == pytest.approx(
        (expected.difference, expected.low, expected.high)
    )
    assert verdict([*rows[:1], whole], task, figure).labels == 100, "a single label has no error"


def test_hostile_differences_of_single_labels_decide_nothing() -> None:
    row = a_result(np.ones(1), np.ones(1), np.zeros(1), task="regression")
    rows = [{**row, "mae_difference": value} for value in (float("nan"), float("inf"), 1e308, -1e308)]
    assert verdict(rows, "regression").labels == 0
