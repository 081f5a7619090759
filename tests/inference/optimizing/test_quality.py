"""How good two versions' answers are, by labels of several kinds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from millstream.inference.errors import NotOptimized
from millstream.inference.optimizing.quality import compare_quality
from millstream.inference.signature import TensorOutput

SCORE = (TensorOutput("y", "score"),)


@pytest.mark.parametrize(
    "labels", [[True, False, None], [1, 0, None], ["true", "false", None], [1.0, 0.0, None]], ids=str
)
def test_labels_of_two_values_give_the_auc_of_a_score(labels: list[Any]) -> None:
    old, new = {"score": np.array([0.9, 0.1, 0.5])}, {"score": np.array([[0.1], [0.9], [0.5]])}
    found = compare_quality(labels, old, new, SCORE)
    assert (found.measure, found.output, found.old, found.new, found.events) == ("AUC", "score", 1.0, 0.0, 2)


def test_scores_that_are_nan_have_no_auc() -> None:
    good, bad = {"score": np.array([0.9, 0.1])}, {"score": np.array([0.9, np.nan])}
    with pytest.raises(NotOptimized, match="output score: auc needs a value in every row, found a null or NaN"):
        compare_quality([True, False], good, bad, SCORE)


def test_second_of_two_classes_is_the_score() -> None:
    outputs = (TensorOutput("y", "p", ("no", "yes")),)
    sides = {"p.no": np.array([0.1, 0.9]), "p.yes": np.array([0.9, 0.1])}
    found = compare_quality([True, False], sides, sides, outputs)
    assert (found.measure, found.output, found.old) == ("AUC", "p.yes", 1.0)


@pytest.mark.parametrize("labels", [["cat", "dog", "bird"], [0, 1, 2], [0.0, 1.0, 2.0]], ids=str)
def test_names_and_indices_of_classes_give_the_accuracy(labels: list[Any]) -> None:
    names = ("cat", "dog", "bird")
    outputs = (TensorOutput("y", "p", names),)
    old = {f"p.{name}": np.eye(3)[:, place] for place, name in enumerate(names)}
    new = old | {"p.cat": np.array([1.0, 2.0, 0.0])}
    found = compare_quality(labels, old, new, outputs)
    assert (found.measure, found.old) == ("accuracy", 1.0)
    assert found.new == pytest.approx(2 / 3)


def test_index_that_a_model_answers_is_compared_as_it_is() -> None:
    outputs = (TensorOutput("y", "label"),)
    found = compare_quality([5, 7.0], {"label": np.array([5, 7])}, {"label": np.array([5, 6])}, outputs)
    assert (found.measure, found.old, found.new) == ("accuracy", 1.0, 0.5)


def test_yes_and_no_of_a_threshold_give_the_accuracy() -> None:
    outputs = (TensorOutput("y", "late", threshold=0.5),)
    found = compare_quality([1, 0], {"late": np.array([True, False])}, {"late": np.array([True, True])}, outputs)
    assert (found.measure, found.old, found.new) == ("accuracy", 1.0, 0.5)


def test_numbers_give_the_mean_absolute_error() -> None:
    found = compare_quality([1.5, 2.5], {"score": np.array([1.5, 2.5])}, {"score": np.array([2.5, 2.5])}, SCORE)
    assert (found.measure, found.old, found.new) == ("mean absolute error", 0.0, 0.5)


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ([None, None], "no event has a label"),
        ([True, True], "all labels are True, so there is no AUC"),
        (["blue", "red"], "labels such as 'blue' can't be compared with the outputs score"),
    ],
)
def test_labels_that_can_not_be_compared_are_told(labels: list[Any], said: str) -> None:
    sides = {"score": np.array([0.1, 0.2])}
    with pytest.raises(NotOptimized, match=said):
        compare_quality(labels, sides, sides, SCORE)
