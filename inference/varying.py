"""Length bucketing for variable-length inputs: groups events into calls and pads each call to one length."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.inference.ragged import Ints, Ragged
from millstream.inference.signature import DTYPES, TensorInput

MIN_LENGTH = 16  # of the default lengths


def length_buckets_of(configured: Sequence[int], max_length: int) -> tuple[int, ...]:
    """The lengths that a model is run at, ascending; powers of two up to `max_length` where none are configured."""
    if configured:
        return tuple(sorted({*(length for length in configured if length < max_length), max_length}))
    sizes = [MIN_LENGTH]
    while sizes[-1] * 2 < max_length:
        sizes.append(sizes[-1] * 2)
    return (*(size for size in sizes if size < max_length), max_length)


def groups_of(lengths: Ints, sizes: Sequence[int], call: float) -> list[tuple[int, Ints]]:
    """Which events run together, and how far they are padded, so that the whole costs least.

    A call costs its items, padding and all, and `call` items besides; so the sizes that are used are chosen by dynamic
    programming over the ascending sizes.

    Args:
        lengths: of each event, none above the last size.
        sizes: ascending.
        call: what a call costs besides its items, in items.

    Returns:
        size -> the rows that are padded to it, ascending; each row once.
    """
    bucket = np.searchsorted(sizes, lengths)
    upto = [0, *np.bincount(bucket, minlength=len(sizes)).cumsum().tolist()]  # events of the first i sizes
    # best[i]: the least that the events of the first i sizes cost; cut[i]: where the last of their groups begins.
    best, cut = [0.0], [0]
    for stop in range(1, len(sizes) + 1):
        costs = [
            best[start] + (call + events * sizes[stop - 1] if (events := upto[stop] - upto[start]) else 0.0)
            for start in range(stop)
        ]
        cut.append(costs.index(min(costs)))
        best.append(costs[cut[-1]])
    groups: list[tuple[int, Ints]] = []
    stop = len(sizes)
    while stop:
        rows = np.flatnonzero((bucket >= cut[stop]) & (bucket < stop))
        if len(rows):
            groups.append((int(sizes[stop - 1]), rows))
        stop = cut[stop]
    return groups[::-1]


def lengths_in(tensors: Mapping[str, Any]) -> Ints:
    """Items of each event: all ragged tensors of an event have the same number."""
    return next(tensor.lengths for tensor in tensors.values() if isinstance(tensor, Ragged))


def padded_to(inputs: Sequence[TensorInput], tensors: Mapping[str, Any], size: int) -> dict[str, npt.NDArray[Any]]:
    """Dense tensors for one call of the model.

    Args:
        inputs: the model's inputs.
        tensors: the call's events; ragged where the length varies.
        size: length to pad to; no event has more items.

    Returns:
        tensor -> [events, size], or [events, *shape] where the length does not vary; also the mask if the model has one.
    """
    mask = next(tensor.mask(size) for tensor in tensors.values() if isinstance(tensor, Ragged))
    made: dict[str, npt.NDArray[Any]] = {}
    for entry in inputs:
        if entry.mask:
            made[entry.tensor] = mask.astype(DTYPES[entry.dtype][0])
        elif entry.max_length is None:
            made[entry.tensor] = tensors[entry.tensor]
        else:
            made[entry.tensor] = tensors[entry.tensor].padded(mask, entry.pad)
    return made
