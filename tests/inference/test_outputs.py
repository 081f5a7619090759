from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.inference.errors import ModelConfigError, ModelRejected, NanOutput
from millstream.inference.outputs import named
from millstream.inference.signature import TensorOutput

CLASSES = ("bird", "cat", "dog")
SCORES = np.array([[0.2, 0.5, 0.3], [0.9, 0.05, 0.05]], np.float32)
PLACE = "model m version 1"


def outputs_of(output: TensorOutput, tensor: Any) -> dict[str, list[Any]]:
    return {name: array.tolist() for name, array in named([output], {"p": np.asarray(tensor)}, PLACE).items()}


def test_index_becomes_the_name_of_its_class() -> None:
    assert outputs_of(TensorOutput("p", "kind", CLASSES), [2, 0]) == {"kind": ["dog", "bird"]}
    assert outputs_of(TensorOutput("p", "kind", CLASSES), [[1], [0]]) == {"kind": [["cat"], ["bird"]]}


def test_each_score_gets_the_name_of_its_class() -> None:
    assert outputs_of(TensorOutput("p", "p", CLASSES), SCORES.astype(float).round(3)) == {
        "p.bird": [0.2, 0.9],
        "p.cat": [0.5, 0.05],
        "p.dog": [0.3, 0.05],
    }


def test_best_classes_are_named_with_their_scores() -> None:
    assert outputs_of(TensorOutput("p", "best", CLASSES, top=2), SCORES.astype(float).round(3)) == {
        "best": [["cat", "dog"], ["bird", "cat"]],
        "best_scores": [[0.5, 0.3], [0.9, 0.05]],
    }


def test_best_classes_without_names_are_indices() -> None:
    found = named([TensorOutput("p", "best", top=1)], {"p": SCORES}, PLACE)
    assert found["best"].tolist() == [[1], [0]]
    assert found["best_scores"].dtype == np.float32


@given(st.lists(st.lists(st.integers(0, 255), min_size=4, max_size=4), min_size=1), st.integers(1, 4))
def test_best_classes_are_those_that_sorting_gives(scores: list[list[int]], top: int) -> None:
    tensor = np.array(scores, np.uint8)
    found = named([TensorOutput("p", "best", top=top)], {"p": tensor}, PLACE)
    assert found["best"].tolist() == [sorted(range(4), key=lambda at: (-row[at], at))[:top] for row in scores]


def test_threshold_answers_yes_or_no() -> None:
    assert outputs_of(TensorOutput("p", "late", threshold=0.5), [0.4, 0.5]) == {"late": [False, True]}
    assert outputs_of(TensorOutput("p", "late", threshold=0.5), [[0.4, 0.6]]) == {"late": [[False, True]]}


@pytest.mark.parametrize("tensor", [[0.4, 0.5], [[0.4], [0.5]], [[0.6, 0.4], [0.5, 0.5]]])
def test_threshold_names_one_of_two_classes(tensor: Any) -> None:
    assert outputs_of(TensorOutput("p", "p", ("on time", "late"), threshold=0.5), tensor) == {"p": ["on time", "late"]}


def test_several_outputs_are_made_of_one_tensor() -> None:
    outputs = [TensorOutput("p", "p"), TensorOutput("p", "best", CLASSES, top=1), TensorOutput("p", "any", threshold=0)]
    assert list(named(outputs, {"p": SCORES}, PLACE)) == ["p", "best", "best_scores", "any"]
    assert named(outputs, {"p": SCORES}, PLACE)["p"] is SCORES


@pytest.mark.parametrize(
    ("output", "tensor", "says"),
    [
        (TensorOutput("p", "p", top=4), SCORES, "wants the best 4 classes, but tensor `p` has 3"),
        (
            TensorOutput("p", "p", top=1),
            [0.5],
            r"needs a score for each class an event from tensor `p`, found shape \[1\] .* Leave `top` out, or name another",
        ),
        (
            TensorOutput("p", "p", ("a",)),
            SCORES,
            r"needs 1 score an event .* found shape \[2, 3\] .* Write as many `classes` as there are scores, or name another",
        ),
        (
            TensorOutput("p", "p", CLASSES),
            ["a"],
            "needs the indices of classes .* found text. Leave `classes` out, or name another tensor.",
        ),
        (
            TensorOutput("p", "p", threshold=1),
            np.array(["a"], object),
            "needs numbers from tensor `p`, found text. Leave `threshold` out, or name a tensor of scores.",
        ),
        (
            TensorOutput("p", "p", top=1),
            [[True, False]],
            "needs numbers from tensor `p`, found true and false. Leave `top` out, or name a tensor of scores.",
        ),
        (TensorOutput("p", "p", ("a", "b"), threshold=1), SCORES, r"needs one score an event, .* found shape \[2, 3\]"),
    ],
)
def test_tensor_that_has_not_what_is_wanted_is_named(output: TensorOutput, tensor: Any, says: str) -> None:
    with pytest.raises(ModelConfigError, match=says) as refused:
        outputs_of(output, tensor)
    assert str(refused.value).startswith(PLACE)


def test_place_of_the_output_is_named_where_it_is_known() -> None:
    with pytest.raises(ModelConfigError, match=r"^config.yaml:7: outputs\[1\]: output `p` needs numbers"):
        outputs_of(TensorOutput("p", "p", threshold=1, at="config.yaml:7: outputs[1]"), ["a"])


@pytest.mark.parametrize("index", [-1, 3])
def test_index_of_no_class_rejects_the_event(index: int) -> None:
    with pytest.raises(ModelRejected, match=f"expected the index of one of 3 classes, found {index} in tensor `p`"):
        outputs_of(TensorOutput("p", "kind", CLASSES), [0, index])


@pytest.mark.parametrize("output", [TensorOutput("p", "x", top=1), TensorOutput("p", "x", threshold=0.5)])
def test_nan_has_no_class(output: TensorOutput) -> None:
    with pytest.raises(NanOutput, match="output `x` is nan in tensor `p`"):
        outputs_of(output, [[0.1, np.nan], [0.2, 0.3]])
