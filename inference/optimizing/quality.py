"""Compares how good the answers of two versions of a model are, by the true answers. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from millstream.inference.auc import auc
from millstream.inference.errors import NotOptimized
from millstream.inference.executors.interface import Tensors
from millstream.inference.optimizing.differences import classes_of
from millstream.inference.signature import TensorOutput, class_name
from millstream.schemas.arrays import Floats, Mask

_TRUTHS = {True: True, "true": True, False: False, "false": False}  # 1 and 1.0 equal True


@dataclass(frozen=True, slots=True)
class Quality:
    """A figure of both versions."""

    measure: str  # AUC, accuracy, or mean absolute error
    output: str
    old: float
    new: float
    events: int  # with a label


def compare_quality(labels: Sequence[Any], old: Tensors, new: Tensors, outputs: Sequence[TensorOutput]) -> Quality:
    """Compare both versions by the labels.

    Labels of two values are compared with a score (AUC), other numbers with a number (mean absolute error), and other labels
    with a class (accuracy).

    Args:
        labels: the true answer of each event: a boolean, a number or a text; None: not known.
        old: the outputs of the original.
        new: those of the other version.
        outputs: of the model's signature.

    Raises:
        NotOptimized: there are no labels, only one value of two, or no output that can be compared with them.
    """
    known = np.array([label is not None for label in labels], np.bool_)
    truths = [label for label in labels if label is not None]
    if not truths:
        raise NotOptimized("no event has a label. Name the field that holds it.")
    before, after = ({name: array[known] for name, array in tensors.items()} for tensors in (old, new))
    binary = _binary(truths)
    if binary is not None and (found := _scores(before, after, outputs)) is not None:
        if binary.all() or not binary.any():
            raise NotOptimized(f"all labels are {truths[0]}, so there is no AUC. Give events with both outcomes.")
        name, ours, theirs = found
        try:
            return Quality("AUC", name, auc(binary, ours), auc(binary, theirs), len(truths))
        except ValueError as error:  # a score is NaN
            raise NotOptimized(f"output {name}: {error}") from None
    if (by_class := _accuracy(truths, before, after, outputs)) is not None:
        return by_class
    if all(isinstance(label, int | float) for label in truths) and (found := _scores(before, after, outputs)):
        name, ours, theirs = found
        true = np.array(truths, np.float64)
        old_error, new_error = (float(np.abs(each - true).mean()) for each in (ours, theirs))
        return Quality("mean absolute error", name, old_error, new_error, len(truths))
    raise NotOptimized(
        f"labels such as {truths[0]!r} can't be compared with the outputs {', '.join(old)}. Name another field, or leave out "
        "`--labels`."
    )


def _binary(labels: Sequence[Any]) -> Mask | None:
    """Labels of two values; None: there are others."""
    keys = [label.lower() if isinstance(label, str) else label for label in labels]
    if not all(isinstance(key, str | int | float) and key in _TRUTHS for key in keys):
        return None
    return np.array([_TRUTHS[key] for key in keys], np.bool_)


def _scores(old: Tensors, new: Tensors, outputs: Sequence[TensorOutput]) -> tuple[str, Floats, Floats] | None:
    """The first output with one number for each event, or the second of two scores: its name and both versions' numbers."""
    for output in outputs:
        if output.top is not None or len(output.classes) > 2:
            continue
        # Of two classes, the score of the second one counts.
        name = class_name(output.name, output.classes[1]) if output.classes else output.name
        array = old.get(name)
        if array is None or array.dtype.kind != "f" or array.size not in {len(array), 2 * len(array)}:
            continue
        first, second = (each[name].reshape(len(array), -1)[:, -1].astype(np.float64) for each in (old, new))
        return name, first, second
    return None


def _accuracy(labels: Sequence[Any], old: Tensors, new: Tensors, outputs: Sequence[TensorOutput]) -> Quality | None:
    """The first output with a class that occurs among the labels."""
    for (output, before), (_, after) in zip(classes_of(old, outputs), classes_of(new, outputs), strict=True):
        wanted = [_word(label, output.classes) for label in labels]
        ours, theirs = ([_word(each) for each in found.tolist()] for found in (before, after))
        if set(wanted) & {*ours, *output.classes}:
            right, right_now = (
                sum(one == true for one, true in zip(side, wanted, strict=True)) / len(labels)
                for side in (ours, theirs)
            )
            return Quality("accuracy", output.name, right, right_now, len(labels))
    return None


def _word(value: object, classes: Sequence[str] = ()) -> str:
    """A class as a text, so that 1, 1.0, true and "true" are the same. `classes`: names for which an index may stand."""
    if isinstance(value, bool | float) and float(value).is_integer():
        value = int(value)
    text = str(value)
    if text not in classes and text.isdecimal() and int(text) < len(classes):
        return classes[int(text)]
    return {"true": "1", "false": "0"}.get(text.lower(), text)
