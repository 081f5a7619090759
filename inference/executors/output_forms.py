"""The types and shapes of outputs, where parts of a micro-batch ran apart: parts of different forms can't be joined."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.inference.executors.interface import Tensors
from millstream.schemas.arrays import Ints

_TYPES = {"b": "a boolean", "i": "an integer", "u": "an integer", "f": "a float"}
_NUMBERS = {"an integer", "a float"}

Form = tuple[tuple[str, str, tuple[int, ...]], ...]
"""Of each output: name, type of a value and shape of one event."""


def are_alike(parts: Sequence[Tensors]) -> bool:
    """Whether the outputs of these parts can be joined so that each event keeps its values."""
    first = _form_of(parts[0])
    if all(_form_of(part) == first for part in parts):
        return True
    return len({_form_of(part, numbers=True) for part in parts}) == 1 and _floats_hold_all(parts)


def changed(before: Tensors, outputs: Tensors) -> dict[str, str]:
    """The outputs that have another number of axes than before, or texts in place of numbers: name -> what was and is there.

    The length of an axis may follow from the events.
    """
    found = {}
    for name, array in outputs.items():
        old = before.get(name)
        if old is not None and (old.ndim != array.ndim or (old.dtype.kind in _TYPES) != (array.dtype.kind in _TYPES)):
            found[name] = f"{_described(old)} before, and {_described(array)} now"
    return found


def _described(array: npt.NDArray[Any]) -> str:
    values = "numbers" if array.dtype.kind in _TYPES else "texts"
    return f"{values} in the shape {list(array.shape[1:])}"


def usual_parts(
    parts: Sequence[Tensors], rows: Sequence[Ints], before: Tensors | None = None
) -> tuple[list[Tensors], list[Ints], dict[int, str]]:
    """Take out the parts whose outputs have another form than those of most events.

    Integers count as floats if floats hold them exactly.

    Args:
        parts: outputs of each part.
        rows: of the events in each part.
        before: outputs of an earlier micro-batch, which decide where as many events have one form as another.

    Returns:
        the other parts, their rows, and row -> what its event has in place of the usual, for those taken out.
    """
    kept, others = _usual(parts, rows, before, numbers=True)
    if not _floats_hold_all([parts[at] for at in kept]):
        kept, others = _usual(parts, rows, before, numbers=False)
    refused = {row: why for at, why in others.items() for row in rows[at].tolist()}
    return [parts[at] for at in kept], [rows[at] for at in kept], refused


def mixes_numbers(parts: Sequence[Tensors], rows: Sequence[Ints], before: Tensors | None = None) -> bool:
    """Whether usual parts have integers that no float holds beside floats. For the arguments, see `usual_parts`."""
    kept, _ = _usual(parts, rows, before, numbers=True)
    return not _floats_hold_all([parts[at] for at in kept])


def _usual(
    parts: Sequence[Tensors], rows: Sequence[Ints], before: Tensors | None, *, numbers: bool
) -> tuple[list[int], dict[int, str]]:
    """The parts of the form that most events have, and what is odd about each other part."""
    forms = [_form_of(part, numbers=numbers) for part in parts]
    events: Counter[Form] = Counter()
    for form, own_rows in zip(forms, rows, strict=True):
        events[form] += len(own_rows)
    known = None if before is None else _form_of(before, numbers=numbers)
    usual = max(events, key=lambda form: (events[form], form == known))
    others = {at: _difference(form, usual) for at, form in enumerate(forms) if form != usual}
    return [at for at in range(len(parts)) if at not in others], others


def _form_of(part: Tensors, *, numbers: bool = False) -> Form:
    """`numbers`: whether integers count as floats."""
    form = []
    for name, array in sorted(part.items()):
        kind = _TYPES.get(array.dtype.kind, "text") if 0 not in array.shape[1:] else "an empty list"
        form.append((name, "a number" if numbers and kind in _NUMBERS else kind, array.shape[1:]))
    return tuple(form)


def _difference(form: Form, usual: Form) -> str:
    """What is odd about an event's outputs."""
    own, most = ({name: (kind, shape) for name, kind, shape in each} for each in (form, usual))
    for name in most:
        if name not in own:
            return f"output `{name}` is missing for this event, and there for others of its micro-batch"
        (kind, shape), (usual_kind, usual_shape) = own[name], most[name]
        if shape != usual_shape:
            own_shape, most_shape = list(shape), list(usual_shape)
            return (
                f"output `{name}` has shape {own_shape} for this event, and {most_shape} for others of its micro-batch"
            )
        if kind != usual_kind:
            return f"output `{name}` is {kind} for this event, and {usual_kind} for others of its micro-batch"
    return f"the event has the outputs {', '.join(own)}, and others of its micro-batch have {', '.join(most)}"


def _floats_hold_all(parts: Sequence[Tensors]) -> bool:
    """Whether no integer of outputs that are floats in other parts would change as a float."""
    return all(
        _are_exact([part[name] for part in parts])
        for name in parts[0]
        if len({part[name].dtype.kind == "f" for part in parts}) > 1
    )


def _are_exact(arrays: Sequence[npt.NDArray[Any]]) -> bool:
    # The largest integer of 64 bits isn't exact, and as a float it is too large to be compared as an integer.
    return all(
        bool((np.abs(array.astype(np.float64)) < 2.0**63).all())
        and np.array_equal(array.astype(np.float64).astype(np.int64), array)
        for array in arrays
        if array.dtype.kind in "iu"
    )
