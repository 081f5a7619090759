"""How far the outputs of two versions of a model are from each other."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from millstream.inference.optimizing.differences import agreements, number_differences
from millstream.inference.signature import TensorOutput

floats = arrays(np.float32, array_shapes(min_dims=1, max_dims=3, max_side=5), elements=st.floats(-1e6, 1e6, width=32))


@given(floats)
def test_equal_outputs_do_not_differ(array: npt.NDArray[np.float32]) -> None:
    (found,) = number_differences({"y": array}, {"y": array.copy()})
    assert (found.max, found.mean, found.p99, found.lost) == (0, 0, 0, 0)
    assert (found.low, found.high) == (float(array.min()), float(array.max()))


@given(floats, st.integers(0, 2**32 - 1))
def test_mean_and_p99_are_at_most_the_largest_difference(array: npt.NDArray[np.float32], seed: int) -> None:
    other = array + np.random.default_rng(seed).normal(size=array.shape).astype(np.float32)
    (found,) = number_differences({"y": array}, {"y": other})
    distances = np.abs(other.astype(np.float64) - array)
    assert found.max == pytest.approx(distances.max())
    assert found.mean == pytest.approx(distances.mean())
    assert 0 <= found.p99 <= found.max


def test_events_whose_numbers_are_lost_are_counted() -> None:
    old = np.array([[1.0, 2.0], [np.nan, 1.0], [3.0, 4.0]])
    new = np.array([[np.nan, np.inf], [np.nan, 1.5], [3.0, 4.0]])
    (found,) = number_differences({"y": old}, {"y": new})
    assert (found.lost, found.max) == (1, 0.5)


def test_outputs_without_fractions_have_no_differences() -> None:
    outputs = {"label": np.array(["a"], object), "index": np.array([1]), "yes": np.array([True])}
    assert number_differences(outputs, outputs) == []


def test_classes_agree_by_name_index_and_largest_score() -> None:
    outputs = (
        TensorOutput("a", "scores", ("cat", "dog")),
        TensorOutput("b", "label"),
        TensorOutput("c", "array"),
        TensorOutput("d", "best", ("cat", "dog"), top=1),
        TensorOutput("e", "number"),
    )
    old = {
        "scores.cat": np.array([0.9, 0.2]),
        "scores.dog": np.array([0.1, 0.8]),
        "label": np.array([3, 4]),
        "array": np.array([[0.1, 0.2, 0.3], [0.3, 0.2, 0.1]]),
        "best": np.array([["cat"], ["dog"]], object),
        "best_scores": np.array([[0.9], [0.8]]),
        "number": np.array([1.0, 2.0]),
    }
    new = old | {
        "scores.dog": np.array([0.95, 0.8]),
        "label": np.array([3, 4]),
        "best": np.array([["dog"], ["cat"]], object),
    }
    found = {each.output: each.share for each in agreements(old, new, outputs)}
    assert found == {"scores": 0.5, "label": 1.0, "array": 1.0, "best": 0.0}
