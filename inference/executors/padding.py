"""Finds models whose results change with the padding behind an event's items."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.inference.errors import ModelRejected
from millstream.inference.ragged import Ragged
from millstream.inference.signature import TensorInput, blank
from millstream.inference.varying import padded_to
from millstream.schemas.wording import shown

# Share and amount by which results may differ, because sums round in another way at another length.
NOTHING = 1e-3, 1e-4
NOTHING_IN_16_BITS = 2e-2, 1e-2
FLOATS = ((-0.5, -1.5, -2.5), (1.5, 0.5, 2.5))  # below and above the padding, so that a maximum or a minimum shows it
INDICES = ((1,), (1, 2, 3))  # the first ones, which most vocabularies have


def effect_of_padding(
    inputs: Sequence[TensorInput],
    run: Callable[[Mapping[str, Any]], Mapping[str, npt.NDArray[Any]]],
    short: int,
    long: int,
    *,
    in_16_bits: bool,
) -> str:
    """What changes if padding stands behind the items of an event. Empty: nothing in the events that are tried.

    Args:
        inputs: the model's.
        run: calls the model with tensors [events, ...].
        short: the number of the event's items, which are first run without padding.
        long: the length that the same event is then padded to.
        in_16_bits: whether the model computes with 16 bits.

    An event that the model rejects is left out. Raises OutOfMemory, ExecutorUnavailable: as `run`.
    """
    for event in _events(inputs, short):
        try:
            bare, padded = (run(padded_to(inputs, event, size)) for size in (short, long))
        except ModelRejected:
            continue
        if changed := _difference(bare, padded, short, long, *(NOTHING_IN_16_BITS if in_16_bits else NOTHING)):
            return changed
    return ""


def _difference(
    bare: Mapping[str, npt.NDArray[Any]],
    padded: Mapping[str, npt.NDArray[Any]],
    short: int,
    long: int,
    share: float,
    amount: float,
) -> str:
    """The first output that differs by more than this, in words; empty: none."""
    for name, expected in bare.items():
        found = padded[name]
        if expected.shape != found.shape:
            continue
        if expected.dtype.kind in "fiub" and found.dtype.kind in "fiub":
            apart = ~np.isclose(found, expected, share, amount, equal_nan=True)
        else:
            apart = np.asarray(found != expected)
        if apart.any():
            place = tuple(np.argwhere(apart)[0])
            return (
                f"output `{name}` of an event of {short} items is {_told(expected[place])} without padding, and "
                f"{_told(found[place])} if it is padded to {long}"
            )
    return ""


def _told(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, np.number | np.bool_) else shown(value)


def _events(inputs: Sequence[TensorInput], items: int) -> Iterator[dict[str, Any]]:
    """Events with so many items."""
    for floats, indices in zip(FLOATS, INDICES, strict=True):
        event = blank(inputs, 1)
        for entry in inputs:
            if isinstance(tensor := event.get(entry.tensor), Ragged):
                kind = tensor.values.dtype.kind
                some: Any = floats if kind == "f" else ("a",) if kind == "O" else (0,) if entry.token_types else indices
                values = np.resize(np.array(some, tensor.values.dtype), items)
                event[entry.tensor] = Ragged.of_lengths(values, np.array([items]))
        yield event
