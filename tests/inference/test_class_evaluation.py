"""The figures of classes, held against scikit-learn and NumPy over all events."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, log_loss

from millstream.inference.class_answers import OTHER_CLASS
from millstream.inference.class_evaluation import Answers, summarise_classes
from millstream.inference.estimates import estimate
from millstream.inference.evaluation import Columns
from tests.inference.class_events import CLASSES, ClassEvents, part

seeds = st.integers(0, 2**32 - 1)


@given(seeds, st.integers(2, 300))
def test_figures_are_those_of_scikit_learn(seed: int, events: int) -> None:
    made = ClassEvents.make(events, seed=seed)
    found = estimate(made.summary(), task="multiclass")
    for side, answers in ((found.primary, made.primary), (found.shadow, made.shadow)):
        assert side.accuracy == pytest.approx(accuracy_score(made.labels, answers.classes))
        expected = log_loss(made.labels, answers.probabilities.astype(np.float64), labels=range(CLASSES))
        assert side.log_loss == pytest.approx(expected, rel=1e-5)
    assert found.paired == events


@given(seeds, st.integers(2, 300))
def test_errors_of_the_differences_are_those_of_the_pairs(seed: int, events: int) -> None:
    made = ClassEvents.make(events, seed=seed)
    found = estimate(made.summary(), task="multiclass")
    right = [(answers.classes == made.labels).astype(float) for answers in (made.primary, made.shadow)]
    logs = [
        -np.log(answers.probabilities[np.arange(events), made.labels].astype(np.float64))
        for answers in (made.primary, made.shadow)
    ]
    for (first, second), difference, error in (
        (right, found.accuracy_difference, found.accuracy_difference_error),
        (logs, found.log_loss_difference, found.log_loss_difference_error),
    ):
        assert difference == pytest.approx((second - first).mean(), abs=1e-9)
        assert error == pytest.approx(np.std(second - first, ddof=1) / np.sqrt(events), rel=1e-5, abs=1e-9)


@given(seeds, st.integers(10, 200), st.integers(1, 9))
def test_sum_of_parts_is_the_whole(seed: int, events: int, cut: int) -> None:
    made = ClassEvents.make(events, seed=seed)
    whole = estimate(made.summary(), task="multiclass")
    summed = estimate(part(made, 0, cut).summary() + part(made, cut, events).summary(), task="multiclass")
    assert summed.paired == whole.paired
    assert summed.primary.accuracy == whole.primary.accuracy
    assert summed.shadow.log_loss == pytest.approx(whole.shadow.log_loss)
    assert summed.accuracy_difference_error == pytest.approx(whole.accuracy_difference_error)


def test_classes_without_probabilities_have_an_accuracy_and_no_log_loss() -> None:
    made = ClassEvents.make(100)
    bare = [Answers(answers.classes, np.empty((100, 0), np.float32)) for answers in (made.primary, made.shadow)]
    found = estimate(summarise_classes(made.columns(), *bare), task="multiclass")
    assert found.primary.accuracy == pytest.approx(accuracy_score(made.labels, made.primary.classes))
    assert (found.primary.log_loss, found.log_loss_difference, found.log_loss_difference_error) == (None, None, None)


def test_one_event_without_probabilities_makes_the_log_loss_unknown() -> None:
    """Otherwise it would silently be that of other events than the accuracy."""
    made = ClassEvents.make(100)
    made.shadow.probabilities[7] = np.nan
    found = estimate(made.summary(), task="multiclass")
    assert found.primary.log_loss is not None
    assert (found.shadow.log_loss, found.log_loss_difference) == (None, None)
    assert found.shadow.accuracy is not None


def test_probability_of_0_for_the_true_class_costs_much_but_is_finite() -> None:
    probabilities = np.array([[1, 0, 0]], np.float32)
    answers = Answers(np.array([0], np.int32), probabilities)
    one = np.ones(1)
    columns = Columns(one, one, one.astype(np.int8), one < 0, one, one, np.array([2.0]))
    found = estimate(summarise_classes(columns, answers, answers), task="multiclass").primary.log_loss
    assert found is not None
    assert 80 < found < 100


def test_events_without_label_or_class_or_shadow_do_not_count() -> None:
    made = ClassEvents.make(10)
    columns = made.columns()
    columns.labels[0] = np.nan
    columns.failed[1] = True
    made.shadow.classes[2] = -1
    found = estimate(summarise_classes(columns, made.primary, made.shadow), task="multiclass")
    assert found.paired == 7
    assert found.primary.accuracy == pytest.approx((made.primary.classes == made.labels)[3:].mean())


def test_class_that_is_not_compared_is_a_wrong_answer() -> None:
    made = ClassEvents.make(10)
    made.shadow.classes[:4] = OTHER_CLASS
    found = estimate(summarise_classes(made.columns(), made.primary, made.shadow), task="multiclass")
    assert found.paired == 10
    assert found.shadow.accuracy == pytest.approx((made.shadow.classes == made.labels)[4:].sum() / 10)
