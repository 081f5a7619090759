"""Inputs of varying length: one number of items for each event, padded only as far as those that run together need it.

Tensors of varying inputs travel padded to some length, with each event's own under `LENGTHS`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from inference.signature import DTYPES, LENGTHS, TensorInput

SHORTEST = 16  # of the default lengths

Ints = npt.NDArray[np.int64]


def lengths_of(configured: Sequence[int], longest: int) -> tuple[int, ...]:
    """The lengths that a model is run at, ascending; powers of two up to `longest` where none are configured."""
    if configured:
        return tuple(sorted({*(length for length in configured if length < longest), longest}))
    sizes = [SHORTEST]
    while sizes[-1] * 2 < longest:
        sizes.append(sizes[-1] * 2)
    return (*(size for size in sizes if size < longest), longest)


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
    counts = np.bincount(bucket, minlength=len(sizes))
    # best[i]: the least that the events of the first i sizes cost; cut[i]: where the last of their groups begins.
    best, cut = [0.0], [0]
    for stop in range(1, len(sizes) + 1):
        costs = [
            best[start] + (call + events * sizes[stop - 1] if (events := int(counts[start:stop].sum())) else 0.0)
            for start in range(stop)
        ]
        cut.append(int(np.argmin(costs)))
        best.append(costs[cut[-1]])
    groups: list[tuple[int, Ints]] = []
    stop = len(sizes)
    while stop:
        rows = np.flatnonzero((bucket >= cut[stop]) & (bucket < stop))
        if len(rows):
            groups.append((int(sizes[stop - 1]), rows))
        stop = cut[stop]
    return groups[::-1]


def padded_to(
    inputs: Sequence[TensorInput], tensors: Mapping[str, npt.NDArray[Any]], rows: Ints, size: int
) -> dict[str, npt.NDArray[Any]]:
    """What the model takes: these rows, the varying tensors [rows, size], and their mask where it wants one."""
    inside = np.arange(size) < tensors[LENGTHS][rows][:, None]
    made: dict[str, npt.NDArray[Any]] = {}
    for entry in inputs:
        if entry.mask:
            made[entry.tensor] = inside.astype(DTYPES[entry.dtype][0])
        elif entry.longest is None:
            made[entry.tensor] = tensors[entry.tensor][rows]
        else:
            given = tensors[entry.tensor][rows, :size]
            array = made[entry.tensor] = np.full((len(rows), size), entry.pad, given.dtype)
            within = inside[:, : given.shape[1]]
            array[:, : given.shape[1]][within] = given[within]
    return made


def widened(parts: Sequence[Mapping[str, npt.NDArray[Any]]]) -> list[dict[str, npt.NDArray[Any]]]:
    """The parts, each padded as far as the longest of them is."""
    widths = {name: max(part[name].shape[1] for part in parts) for name, array in parts[0].items() if array.ndim > 1}
    return [{name: _widened(array, widths.get(name, 0)) for name, array in part.items()} for part in parts]


def _widened(array: npt.NDArray[Any], width: int) -> npt.NDArray[Any]:
    if array.ndim < 2 or array.shape[1] == width:
        return array
    return np.concatenate([array, np.zeros((len(array), width - array.shape[1]), array.dtype)], axis=1)
