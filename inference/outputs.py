"""What a prediction has of the model's output tensors: the tensors, the names of classes, the best classes, or yes and no."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.inference.errors import ModelConfigError, ModelRejected, NanOutput
from millstream.inference.signature import TensorOutput, class_name, scores_name
from millstream.schemas.wording import counted

Array = npt.NDArray[Any]


def named(outputs: Sequence[TensorOutput], tensors: Mapping[str, Array], place: str) -> dict[str, Array]:
    """The outputs of a prediction.

    Args:
        outputs: what the prediction has.
        tensors: the model's outputs by tensor, [events, ...].
        place: how messages name the model, where the place of the output isn't known.

    Raises:
        ModelConfigError: a tensor has no shape or type for what config.yaml wants of it.
        ModelRejected: the model names a class that there is not.
        NanOutput: a score is NaN, so nobody can say which class is the best.
    """
    made: dict[str, Array] = {}
    for output in outputs:
        tensor, at = tensors[output.tensor], output.at or place
        if output.top is not None:
            made |= _best(output, _scores(output, tensor, at), output.top, at)
        elif output.threshold is not None:
            made[output.name] = _above(output, _numbers(output, tensor, at), output.threshold, at)
        elif not output.classes:
            made[output.name] = tensor
        elif tensor.dtype.kind == "f":
            scores = _scores(output, tensor, at)
            made |= {class_name(output.name, of): scores[:, column] for column, of in enumerate(output.classes)}
        else:
            made[output.name] = _class_of(output, tensor, at)
    return made


def _best(output: TensorOutput, scores: Array, top: int, place: str) -> dict[str, Array]:
    """The best classes of each event, and their scores. Of equal scores, the first class is better."""
    if top > scores.shape[1]:
        raise ModelConfigError(
            f"{place}: output `{output.name}` wants the best {top} classes, but tensor `{output.tensor}` has "
            f"{scores.shape[1]}. Write a smaller `top`."
        )
    _refuse_nan(output, scores)
    best = np.argsort(-scores.astype(np.float64, copy=False), axis=1, kind="stable")[:, :top]
    return {
        output.name: _names(output)[best] if output.classes else best,
        scores_name(output.name): np.take_along_axis(scores, best, axis=1),
    }


def _above(output: TensorOutput, numbers: Array, threshold: float, place: str) -> Array:
    """Whether each number reaches the threshold. With two classes: the second one if its score does, else the first."""
    _refuse_nan(output, numbers)
    if not output.classes:
        return np.asarray(numbers >= threshold)
    scores = numbers.reshape(len(numbers), -1)
    if numbers.ndim > 2 or scores.shape[1] not in {1, 2}:
        raise ModelConfigError(
            f"{place}: output `{output.name}` has a threshold and two classes, so tensor `{output.tensor}` needs one score an "
            f"event, or one for each class, found shape {list(numbers.shape)}. Leave `classes` out, or take another tensor."
        )
    return _names(output)[(scores[:, -1] >= threshold).astype(np.int64)]


def _class_of(output: TensorOutput, tensor: Array, place: str) -> Array:
    """The names of classes, in place of their indices."""
    if tensor.dtype.kind not in "iub":
        raise ModelConfigError(
            f"{place}: output `{output.name}` names classes, so tensor `{output.tensor}` needs the indices of classes (whole "
            f"numbers) or a score for each class, found {_kind(tensor)}. Leave `classes` out, or name another tensor."
        )
    indices = tensor.astype(np.int64, copy=False)
    wrong = (indices < 0) | (indices >= len(output.classes))
    if wrong.any():
        raise ModelRejected(
            f"output `{output.name}`: expected the index of one of {len(output.classes)} classes, found {indices[wrong][0]} in "
            f"tensor `{output.tensor}`"
        )
    return _names(output)[indices]


def _scores(output: TensorOutput, tensor: Array, place: str) -> Array:
    """The scores of the classes, [events, classes]."""
    scores = _numbers(output, tensor, place)
    if scores.ndim != 2 or (output.classes and scores.shape[1] != len(output.classes)):
        count = counted(len(output.classes), "score") if output.classes else "a score for each class"
        options = " and ".join(f"`{name}`" for name in ("classes", "top") if getattr(output, name))
        has_scores = output.classes and scores.ndim == 2
        advice = "Write as many `classes` as there are scores" if has_scores else f"Leave {options} out"
        raise ModelConfigError(
            f"{place}: output `{output.name}` needs {count} an event from tensor `{output.tensor}`, found shape "
            f"{list(scores.shape)} (first axis: the event). {advice}, or name another tensor."
        )
    return scores


def _numbers(output: TensorOutput, tensor: Array, place: str) -> Array:
    if tensor.dtype.kind not in "fiu":
        option = "threshold" if output.top is None else "top"
        raise ModelConfigError(
            f"{place}: output `{output.name}` needs numbers from tensor `{output.tensor}`, found {_kind(tensor)}. "
            f"Leave `{option}` out, or name a tensor of scores."
        )
    return tensor


def _kind(tensor: Array) -> str:
    """The type of the values in words. numpy calls texts objects."""
    return {"O": "text", "U": "text", "S": "text", "b": "true and false"}.get(tensor.dtype.kind, str(tensor.dtype))


def _names(output: TensorOutput) -> Array:
    return np.array(output.classes, object)


def _refuse_nan(output: TensorOutput, numbers: Array) -> None:
    if numbers.dtype.kind == "f" and np.isnan(numbers).any():
        raise NanOutput(f"output `{output.name}` is nan in tensor `{output.tensor}`")
