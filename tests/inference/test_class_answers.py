"""What a multi-class model predicted, from each form that a prediction has."""

from __future__ import annotations

import math
from typing import Any

import pytest

from millstream.inference.class_answers import (
    MAX_PROBABILITIES,
    NO_CLASS,
    OTHER_CLASS,
    Classes,
    are_probabilities,
    compared_classes,
)

PETS = Classes(["bird", "cat", "dog"])
SCORES = [0.2, 0.1, 0.7]


@pytest.mark.parametrize(
    ("name", "outputs", "expected"),
    [
        ("s", {"s.bird": 0.2, "s.cat": 0.1, "s.dog": 0.7}, (2, SCORES)),
        ("s", {"s": SCORES}, (2, SCORES)),
        ("best", {"best": ["dog", "bird", "cat"], "best_scores": [0.7, 0.2, 0.1]}, (2, SCORES)),
        ("best", {"best": [2, 0, 1], "best_scores": [0.7, 0.2, 0.1]}, (2, SCORES)),
        ("best", {"best": ["dog", "bird"], "best_scores": [0.7, 0.2]}, (2, None)),
        ("label", {"label": "cat"}, (1, None)),
        ("label", {"label": 1}, (1, None)),
        ("label", {"label": "wolf"}, (OTHER_CLASS, None)),
        ("label", {"label": 3}, (OTHER_CLASS, None)),
        ("best", {"best": ["wolf", "dog"], "best_scores": [0.7, 0.2]}, (OTHER_CLASS, None)),
        ("s", {"s.bird": 0.2, "s.cat": 0.1, "s.dog": 0.3, "s.wolf": 0.4}, (OTHER_CLASS, [0.2, 0.1, 0.3])),
        ("s", {"s.bird": 0.2, "s.cat": 0.1, "s.dog": 0.6, "s.wolf": 0.1}, (2, [0.2, 0.1, 0.6])),
        ("s", {"s.bird": 0.2, "s.cat": 0.8}, (1, None)),
        ("s", {"s.bird": 0.2, "s.cat": math.nan, "s.dog": 0.7}, (NO_CLASS, None)),
        ("label", {"label": 0.5}, (NO_CLASS, None)),
        ("s", {"s": [0.5, 0.5]}, (NO_CLASS, None)),
        ("s", {"s": [0.5, math.nan, 0.5]}, (NO_CLASS, None)),
        ("s", {"s.bird": 0.2}, (NO_CLASS, None)),
        ("s", {}, (NO_CLASS, None)),
    ],
)
def test_class_and_probabilities_are_read(name: str, outputs: dict[str, Any], expected: Any) -> None:
    assert PETS.read(name, outputs) == expected


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ("dog", 2),
        ("2", 2),
        (2, 2),
        (2.0, 2),
        (True, 1),
        ("3", NO_CLASS),
        ("02", NO_CLASS),
        ("+1", NO_CLASS),
        (-1, NO_CLASS),
        (0.5, NO_CLASS),
        (None, NO_CLASS),
    ],
)
def test_label_is_a_name_or_an_index(value: object, place: int) -> None:
    assert PETS.place_of(value) == place


def test_number_is_a_name_if_names_are_numbers() -> None:
    """As the index 3 it would silently mean another class."""
    stars = Classes(["1", "2", "3"])
    assert [stars.place_of(value) for value in (1, "3", 3.0, 0)] == [0, 2, 2, NO_CLASS]


def test_null_is_no_class_of_that_name() -> None:
    assert Classes(["None", "Some"]).place_of(None) == NO_CLASS


def test_output_with_probabilities_is_compared_if_none_is_named() -> None:
    outputs = {"best": ["dog"], "best_scores": [0.7], "label": "dog", "z": SCORES}
    assert compared_classes(PETS, None, outputs, outputs) == "z"
    assert compared_classes(PETS, "label", outputs, outputs) == "label"
    assert compared_classes(PETS, None, {"label": "dog"}, outputs) == "label"
    assert compared_classes(PETS, None, {"label": "dog"}, {"other": "dog"}) is None


def test_output_stays_the_same_where_a_model_chooses_a_class_that_is_not_compared() -> None:
    known = {"label": "dog", "other": "cat", "text": "warm"}
    assert compared_classes(PETS, None, known, {**known, "label": "wolf"}) == "label"
    assert compared_classes(PETS, None, {**known, "label": "wolf"}, known) == "label"
    assert compared_classes(PETS, None, {"text": "warm"}, {"text": "cold"}) is None


def test_logits_are_no_probabilities() -> None:
    assert are_probabilities(SCORES)
    assert are_probabilities([1.0000003576278687, 0.0, 0.0])  # a random forest of scikit-learn in ONNX
    assert not are_probabilities([2.0, -1.0, 0.0])
    assert not are_probabilities([0.2, 0.1, 0.2])


def test_probabilities_of_very_many_classes_are_not_kept() -> None:
    assert Classes([f"c{number}" for number in range(MAX_PROBABILITIES)]).probabilities == MAX_PROBABILITIES
    assert Classes([f"c{number}" for number in range(MAX_PROBABILITIES + 1)]).probabilities == 0
