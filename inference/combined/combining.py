"""Makes one value of the outputs of several models: their mean, their vote, or all of them. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from millstream.inference.combined.output_types import plain
from millstream.inference.errors import ModelConfigError

Array = npt.NDArray[Any]


class Source(NamedTuple):
    """Where a value of an ensemble comes from."""

    combination: Literal["mean", "vote", "stack"] | None  # None: the one output, as it is
    outputs: tuple[tuple[str, str], ...]  # the step and the name of each output
    weights: tuple[float, ...] = ()  # for `mean`, of each output; empty: all are equal
    place: str = ""  # in the pipeline file, for messages

    @property
    def steps(self) -> set[str]:
        """The steps that it needs."""
        return {step for step, _ in self.outputs}


def combined(source: Source, answers: Mapping[str, Mapping[str, Array]]) -> Array:
    """The value of each event.

    Args:
        source: where it comes from.
        answers: step -> output -> [events, ...].

    Raises:
        ModelConfigError: there is no such output, or the outputs don't fit each other.
    """
    arrays = [_output(source, answers, step, name) for step, name in source.outputs]
    match source.combination:
        case "mean":
            return mean(_alike(source, arrays, "iuf", "numbers"), source.weights)
        case "vote":
            return vote(_alike(source, arrays, "iubUO", "texts, whole numbers or booleans"))
        case "stack":
            return stack(source, arrays)
    return arrays[0]


def mean(arrays: Sequence[Array], weights: Sequence[float] = ()) -> Array:
    """The weighted mean, [events, ...]. float32 stays float32; whole numbers become float64."""
    dtype = np.result_type(*arrays)
    share = np.array(weights or [1.0] * len(arrays)) / (sum(weights) or len(arrays))
    total: Array = arrays[0] * share[0]  # float64, unless the arrays are float64 already
    for array, weight in zip(arrays[1:], share[1:], strict=True):
        total = total + array * weight
    return total.astype(dtype, copy=False) if dtype.kind == "f" else total


def vote(arrays: Sequence[Array]) -> Array:
    """The most frequent value, element by element, [events, ...]. If several are, the one of the first array that has one."""
    counts = np.array(
        [sum((np.asarray(array == other, np.int64) for other in arrays), np.int64(0)) for array in arrays]
    )
    winner = counts.argmax(axis=0)  # the first of equal counts
    voted = arrays[0].astype(np.result_type(*arrays) if arrays[0].dtype.kind not in "UO" else object)
    for at in range(1, len(arrays)):
        won = winner == at
        if won.any():
            voted[won] = arrays[at][won]
    return voted


def stack(source: Source, arrays: Sequence[Array]) -> Array:
    """All elements of each event, one output behind the other, [events, elements]."""
    texts = {array.dtype.kind in "UO" for array in arrays}
    if len(texts) > 1:
        raise ModelConfigError(f"{source.place}: expected outputs of one type under `stack`, found texts and numbers.")
    return np.concatenate([array.reshape(len(array), -1) for array in arrays], axis=1)


def _output(source: Source, answers: Mapping[str, Mapping[str, Array]], step: str, name: str) -> Array:
    if name not in answers[step]:
        raise ModelConfigError(
            f"{source.place}: expected an output of step {step} ({', '.join(answers[step])}), found {step}.{name}. Name one of "
            f"them."
        )
    return answers[step][name]


def _alike(source: Source, arrays: Sequence[Array], kinds: str, wanted: str) -> Sequence[Array]:
    """The arrays, after a check that they can be combined."""
    arrays = [plain(array) for array in arrays]
    for (step, name), array in zip(source.outputs, arrays, strict=True):
        if array.dtype.kind not in kinds:
            raise ModelConfigError(
                f"{source.place}: expected {wanted} for `{source.combination}`, found {array.dtype} in {step}.{name}."
            )
        if array.shape != arrays[0].shape:
            raise ModelConfigError(
                f"{source.place}: expected outputs of one shape for `{source.combination}`, found {list(arrays[0].shape[1:])} in "
                f"{'.'.join(source.outputs[0])} and {list(array.shape[1:])} in {step}.{name} (per event)."
            )
    return arrays
