"""Mean, vote and stack, compared with one event at a time."""

import statistics
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.inference.combined.combining import Source, combined
from millstream.inference.errors import ModelConfigError

ROWS = st.integers(1, 12)


def source(combination: Any, count: int, weights: tuple[float, ...] = ()) -> Source:
    return Source(
        combination,
        tuple((f"s{at}", "y") for at in range(count)),
        weights,
        "pipeline.yaml:9: models.ensemble.outputs.y",
    )


def answers(columns: list[Any]) -> dict[str, dict[str, Any]]:
    return {f"s{at}": {"y": column} for at, column in enumerate(columns)}


@given(st.data(), ROWS, st.integers(1, 4), st.booleans())
def test_mean(data: st.DataObject, rows: int, count: int, weighted: bool) -> None:
    numbers = st.floats(-1e6, 1e6)
    columns = [np.array(data.draw(st.lists(numbers, min_size=rows, max_size=rows))) for _ in range(count)]
    weights = tuple(data.draw(st.lists(st.floats(0.1, 10), min_size=count, max_size=count))) if weighted else ()
    found = combined(source("mean", count, weights), answers(columns))
    for row in range(rows):
        values = [column[row] for column in columns]
        assert found[row] == pytest.approx(statistics.fmean(values, weights or None), abs=1e-6)


def test_mean_keeps_the_width_of_floats_and_makes_floats_of_whole_numbers() -> None:
    narrow = combined(source("mean", 2), answers([np.array([1, 2], np.float32), np.array([2, 3], np.float32)]))
    whole = combined(source("mean", 2), answers([np.array([1, 2]), np.array([2, 3])]))
    assert (str(narrow.dtype), narrow.tolist()) == ("float32", [1.5, 2.5])
    assert (str(whole.dtype), whole.tolist()) == ("float64", [1.5, 2.5])


@given(st.data(), ROWS, st.integers(1, 5), st.sampled_from(["text", "int", "bool"]))
def test_vote(data: st.DataObject, rows: int, count: int, kind: str) -> None:
    values: Any = {"text": st.sampled_from(["cat", "dog", "bird"]), "int": st.integers(0, 2), "bool": st.booleans()}[
        kind
    ]
    drawn = [data.draw(st.lists(values, min_size=rows, max_size=rows)) for _ in range(count)]
    columns = [np.array(each, object if kind == "text" else None) for each in drawn]
    found = combined(source("vote", count), answers(columns)).tolist()
    for row in range(rows):
        votes = [each[row] for each in drawn]
        most = max(Counter(votes).values())
        assert found[row] == next(vote for vote in votes if votes.count(vote) == most)


@given(ROWS)
def test_stack(rows: int) -> None:
    scalar, pair = np.arange(rows, dtype=np.float32), np.arange(2 * rows, dtype=np.float32).reshape(rows, 2) + 100
    found = combined(source("stack", 2), answers([scalar, pair]))
    assert found.tolist() == [[scalar[row], *pair[row]] for row in range(rows)]


def test_one_output_is_taken_as_it_is() -> None:
    column = np.arange(3)
    assert combined(source(None, 1), answers([column])) is column


@pytest.mark.parametrize(
    ("combination", "columns", "said"),
    [
        ("mean", [np.array(["a"], object), np.array([1.0])], "expected numbers for `mean`, found object in s0.y."),
        (
            "vote",
            [np.array([1.0]), np.array([1.0])],
            "expected texts, whole numbers or booleans for `vote`, found float64 in s0.y.",
        ),
        ("mean", [np.zeros((1, 2)), np.zeros((1, 3))], "found [2] in s0.y and [3] in s1.y (per event)."),
        ("stack", [np.array(["a"], object), np.array([1.0])], "found texts and numbers."),
    ],
)
def test_outputs_that_do_not_fit_are_named(combination: str, columns: list[Any], said: str) -> None:
    with pytest.raises(ModelConfigError) as caught:
        combined(source(combination, 2), answers(columns))
    assert str(caught.value).startswith("pipeline.yaml:9: models.ensemble.outputs.y: ")
    assert str(caught.value).endswith(said)


def test_output_that_is_missing_is_named() -> None:
    with pytest.raises(ModelConfigError, match=r"expected an output of step s0 \(z\), found s0.y. Name one of them."):
        combined(source(None, 1), {"s0": {"z": np.zeros(1)}})


@pytest.mark.parametrize("way", ["mean", "vote"])
def test_one_value_per_event_is_the_same_in_either_shape(way: str) -> None:
    flat, column = np.array([1, 3]), np.array([[1], [3]])
    assert combined(source(way, 2), answers([flat, column])).tolist() == [1, 3]
