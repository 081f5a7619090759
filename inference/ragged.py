"""Ragged (jagged) arrays: each event has a number of items of its own, and none is padded."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Index = slice | Ints | npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Ragged:
    """The items of all events, end to end. Its memory is that of the items; a slice is a view."""

    values: npt.NDArray[Any]  # [items]
    offsets: Ints  # [events + 1], ascending: event `i` has values[offsets[i] : offsets[i + 1]]

    @classmethod
    def of_lengths(cls, values: npt.NDArray[Any], lengths: Ints) -> "Ragged":
        """From the items, end to end, and each event's number of them."""
        return cls(values, offsets_of(lengths))

    @classmethod
    def concatenate(cls, parts: Sequence["Ragged"]) -> "Ragged":
        """The events of all parts, in order; at least one part."""
        return cls.of_lengths(
            np.concatenate([part.items for part in parts]), np.concatenate([part.lengths for part in parts])
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Ints:
        """Items of each event."""
        return self.offsets[1:] - self.offsets[:-1]

    @property
    def items(self) -> npt.NDArray[Any]:
        """The items of these events, end to end; of a slice, no others."""
        return self.values[self.offsets[0] : self.offsets[-1]]

    def __getitem__(self, rows: Index) -> "Ragged":
        """Some of the events, selected as numpy selects rows: a view for a slice without a step, else a copy of their items."""
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            if step == 1:
                return Ragged(self.values, self.offsets[start : max(start, stop) + 1])
        lengths = self.lengths[rows]
        offsets = offsets_of(lengths)
        places = np.arange(offsets[-1])
        places += np.repeat(self.offsets[:-1][rows] - offsets[:-1], lengths)
        return Ragged(self.values.take(places), offsets)

    def mask(self, size: int) -> npt.NDArray[np.bool_]:
        """[events, size]: true for each event's items, false for the padding behind them."""
        return np.arange(size, dtype=np.int32) < self.lengths.astype(np.int32)[:, None]  # half the time of int64

    def padded(self, mask: npt.NDArray[np.bool_], pad: float | str) -> npt.NDArray[Any]:
        """A dense copy, [events, size], with `pad` behind each event's items.

        Args:
            mask: `mask(size)` of this array, or of one with the same lengths; no event is longer than `size`.
            pad: what stands where there is no item.
        """
        array = np.full(mask.shape, pad, self.values.dtype)
        array[mask] = self.items
        return array


def offsets_of(lengths: Ints) -> Ints:
    """Where each event's items begin when all lie end to end; and where the last ones end. One more than there are lengths."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets
