"""Length bucketing for variable-length inputs: groups events into calls and pads each call to one length."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.inference.ragged import Ragged
from millstream.inference.signature import DTYPES, TensorInput
from millstream.schemas.arrays import Ints

MIN_LENGTH = 16  # the shortest default length


def length_buckets_of(configured: Sequence[int], max_length: int) -> tuple[int, ...]:
    """The lengths that a model runs at, ascending. If none are configured: powers of two up to `max_length`."""
    if configured:
        return tuple(sorted({*(length for length in configured if length < max_length), max_length}))
    sizes = [MIN_LENGTH]
    while sizes[-1] * 2 < max_length:
        sizes.append(sizes[-1] * 2)
    return (*(size for size in sizes if size < max_length), max_length)


def groups_of(lengths: Ints, sizes: Sequence[int], call: float) -> list[tuple[int, Ints]]:
    """Group the events into calls, and choose the length that each call is padded to, so that the total cost is least.

    A call costs its items, with the padding, plus a fixed cost. Dynamic programming over the ascending sizes finds the sizes to
    use.

    Args:
        lengths: of each event; none is above the last size.
        sizes: ascending.
        call: the fixed cost of a call, in items.

    Returns:
        for each size that is used, the size and the rows that are padded to it, ascending. Each row occurs once.
    """
    bucket = np.searchsorted(sizes, lengths)
    upto = [0, *np.bincount(bucket, minlength=len(sizes)).cumsum().tolist()]  # events of the first i sizes
    # best[i]: the least cost of the events of the first i sizes; cut[i]: where the last of their groups begins.
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
    """The number of items of each event, which is the same in all ragged tensors."""
    return next(tensor.lengths for tensor in tensors.values() if isinstance(tensor, Ragged))


def padded_to(inputs: Sequence[TensorInput], tensors: Mapping[str, Any], size: int) -> dict[str, npt.NDArray[Any]]:
    """Dense tensors for one call of the model.

    Args:
        inputs: the model's inputs.
        tensors: the call's events; inputs of variable length are ragged.
        size: length to pad to; no event has more items.

    Returns:
        tensor -> [events, size], or [events, *shape] for inputs of fixed length; also the mask if the model has one.
    """
    mask = next(tensor.mask(size) for tensor in tensors.values() if isinstance(tensor, Ragged))
    made: dict[str, npt.NDArray[Any]] = {}
    for entry in inputs:
        if entry.mask:
            made[entry.tensor] = mask.astype(DTYPES[entry.dtype])
        elif entry.max_length is None:
            made[entry.tensor] = tensors[entry.tensor]
        else:
            made[entry.tensor] = tensors[entry.tensor].padded(mask, entry.pad)
    return made
