"""Finds models whose results change with the padding behind an event's items."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.inference.ragged import Ragged
from millstream.inference.signature import TensorInput, blank
from millstream.inference.varying import padded_to

NOTHING = (
    0.02,
    1e-3,
)  # share, and amount, by which results may differ: quantized models round in another way at another length
FLOATS = (-0.5, -1.5, -2.5)  # below the padding, so that a maximum shows it, and with a mean other than zero


def effect_of_padding(
    inputs: Sequence[TensorInput],
    run: Callable[[Mapping[str, Any]], Mapping[str, npt.NDArray[Any]]],
    short: int,
    long: int,
) -> str:
    """What changes if padding stands behind the items of an event. Empty: nothing that numbers show.

    Args:
        inputs: the model's.
        run: calls the model with tensors [events, ...].
        short: the number of the event's items, which are first run without padding.
        long: the length that the same event is then padded to.

    Raises:
        Exception: as `run`.
    """
    event = _event(inputs, short)
    bare, padded = (run(padded_to(inputs, event, size)) for size in (short, long))
    for name, expected in bare.items():
        found = padded[name]
        if expected.shape != found.shape or expected.dtype.kind not in "fiub":
            continue
        apart = ~np.isclose(found, expected, *NOTHING, equal_nan=True)
        if apart.any():
            place = tuple(np.argwhere(apart)[0])
            return (
                f"output `{name}` of an event of {short} items is {expected[place]:.6g} without padding, and {found[place]:.6g} "
                f"if it is padded to {long}"
            )
    return ""


def _event(inputs: Sequence[TensorInput], items: int) -> dict[str, Any]:
    """An event with so many items. Indices are 1, which most vocabularies have, and token types 0."""
    event = blank(inputs, 1)
    for entry in inputs:
        if isinstance(tensor := event.get(entry.tensor), Ragged) and not entry.token_types:
            kind = tensor.values.dtype.kind
            one: Any = FLOATS if kind == "f" else "a" if kind == "O" else 1
            event[entry.tensor] = Ragged.of_lengths(
                np.resize(np.array(one, tensor.values.dtype), items), np.array([items])
            )
        elif isinstance(tensor, Ragged):
            event[entry.tensor] = Ragged.of_lengths(tensor.values[:items], np.array([items]))
    return event
