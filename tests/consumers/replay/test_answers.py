"""Scores and agreement of replayed outputs follow the rules of the comparison job."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.consumers.comparison.rows import Scoring
from millstream.consumers.replay.answers import NO_ANSWER, Answering, agreement, first_event
from millstream.inference.class_answers import NO_CLASS, Classes
from millstream.pipeline.comparison_sections import Comparison
from millstream.schemas.comparisons import Comparisons, Pair, Variant

PAIR = Pair(Variant("m", 1, "primary"), Variant("m", 2))
NUMBERS = st.one_of(st.sampled_from([0.0, 0.5, 1.0, math.nan, math.inf, 3]), st.floats(0, 1), st.booleans())
VALUES = st.one_of(NUMBERS, st.sampled_from(["a", "b"]), st.lists(st.floats(0, 1), min_size=1, max_size=3))
OUTPUTS: st.SearchStrategy[dict[str, Any]] = st.one_of(st.fixed_dictionaries({"p": VALUES}), st.just({}))


def section(**options: Any) -> Comparison:
    return Comparison.model_validate({"topic": "c", "evaluations": "e", "output": "p", **options})


def of_the_job(comparison: Comparison, classes: Classes | None, first: Any, second: Any) -> Any:
    """The row of the comparison job."""
    ones = np.ones(1)
    columns = Comparisons(
        np.zeros(1, np.int64),
        ["e"],
        np.ones(1, np.int64),
        [PAIR],
        np.zeros(1, np.uint16),
        [first],
        [second],
        ones,
        ones,
    )
    return Scoring.of(comparison, classes).rows(columns, np.array([7]))[0]


def of_replay(comparison: Comparison, classes: Classes | None, first: Any, second: Any) -> Any:
    """Both rows, and whether they agree."""
    answering = Answering(comparison.output, comparison.item, classes)
    sides = [np.zeros(1, answering.row_type) for _ in range(2)]
    for rows, outputs in zip(sides, (first, second), strict=True):
        answering.fill_from(rows, [outputs])
    return sides[0], sides[1], int(agreement(comparison, *sides)[0])


@pytest.mark.parametrize("options", [{}, {"item": 1}, {"task": "regression", "tolerance": 0.1}])
@given(first=OUTPUTS, second=OUTPUTS)
def test_predictions_have_the_scores_and_the_agreement_of_the_comparison_job(
    options: dict[str, Any], first: Any, second: Any
) -> None:
    comparison = section(**options)
    job = of_the_job(comparison, None, first, second)
    ours, theirs, agrees = of_replay(comparison, None, first, second)
    np.testing.assert_equal(
        (ours["score"][0], theirs["score"][0], agrees), (job["primary"], job["shadow"], job["agreed"])
    )


@given(st.lists(st.one_of(st.none(), st.lists(st.floats(0, 1), min_size=3, max_size=3)), min_size=1, max_size=5))
def test_classes_have_the_answers_of_the_comparison_job(found: list[list[float] | None]) -> None:
    comparison, classes = section(task="multiclass", classes=("a", "b", "c")), Classes(["a", "b", "c"])
    for scores in found:
        first: dict[str, Any] = {} if scores is None else {"p": scores}
        second: dict[str, Any] = {"p": [0.2, 0.5, 0.3]}
        job = of_the_job(comparison, classes, first, second)
        ours, theirs, agrees = of_replay(comparison, classes, first, second)
        assert agrees == job["agreed"]
        assert ours["answer"][0] == (NO_ANSWER if job["primary_class"] == NO_CLASS else job["primary_class"])
        np.testing.assert_array_equal(ours["probabilities"][0], job["primary_probabilities"])
        np.testing.assert_array_equal(theirs["probabilities"][0], job["shadow_probabilities"])


def test_other_class_than_those_compared_is_an_answer_that_agrees_with_none() -> None:
    comparison, classes = section(task="multiclass", output="label", classes=("a", "b")), Classes(["a", "b"])
    for first, second, agrees in (("a", "z", 0), ("y", "z", 0), ("a", "a", 1)):
        sides = {"label": first}, {"label": second}
        ours, theirs, found = of_replay(comparison, classes, *sides)
        job = of_the_job(comparison, classes, *sides)
        assert found == job["agreed"] == agrees
        assert (ours["answer"][0], theirs["answer"][0]) == (job["primary_class"], job["shadow_class"])


@pytest.mark.parametrize("item", [None, 1])
@pytest.mark.parametrize(
    "values",
    [
        np.array([0.1, 0.7, np.nan], np.float32),
        np.array([[0.1], [0.7], [0.2]], np.float32),
        np.array([[0.1, 0.9], [0.7, 0.3], [0.5, 0.5]], np.float32),
        np.array([[[0.1, 0.9]], [[0.7, 0.3]], [[0.5, 0.5]]], np.float64),
        np.array([1, 0, 5]),
        np.array([True, False, True]),
        np.array(["a", "b", "a"], object),
        np.array([["a", "b"], ["b", "a"], ["a", "a"]], object),
    ],
)
def test_arrays_give_the_same_rows_as_the_predictions_made_of_them(values: Any, item: int | None) -> None:
    answering = Answering("p", item, None)
    from_arrays, from_predictions = (np.zeros(3, answering.row_type) for _ in range(2))
    answering.fill(from_arrays, {"p": values})
    answering.fill_from(from_predictions, [first_event({"p": values[row : row + 1]}) for row in range(3)])
    np.testing.assert_array_equal(from_arrays["score"], from_predictions["score"])
    np.testing.assert_array_equal(from_arrays["answer"], from_predictions["answer"])


def test_output_in_common_is_chosen_as_the_comparison_job_does() -> None:
    comparison = Comparison.model_validate({"topic": "c", "evaluations": "e"})
    assert Answering.of(comparison, None, {"c": 1, "p": 0.5}, {"c": 2, "p": 0.5}).output == "p"
    assert Answering.of(comparison, None, {"c": 1}, {"d": 2}).output is None
