"""Ragged (jagged) arrays: each event has its own number of items, without padding."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.schemas.arrays import Ints
from millstream.schemas.packed import spans

Index = slice | Ints | npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Ragged:
    """The items of all events, end to end. A slice is a view."""

    values: npt.NDArray[Any]  # [items]
    offsets: Ints  # [events + 1], ascending: event `i` has values[offsets[i] : offsets[i + 1]]

    @classmethod
    def of_lengths(cls, values: npt.NDArray[Any], lengths: Ints) -> "Ragged":
        """Build from the items of all events, end to end, and each event's number of items."""
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
        """The items of these events only, end to end (`values` of a slice holds those of other events too)."""
        return self.values[self.offsets[0] : self.offsets[-1]]

    def __getitem__(self, rows: Index) -> "Ragged":
        """Select events as numpy selects rows. A slice with step 1 is a view; any other selection copies the items."""
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            if step == 1:
                return Ragged(self.values, self.offsets[start : max(start, stop) + 1])
        lengths = self.lengths[rows]
        return Ragged.of_lengths(self.values.take(spans(self.offsets[:-1][rows], lengths)), lengths)

    def mask(self, size: int) -> npt.NDArray[np.bool_]:
        """[events, size]: true for each event's items, false for the padding behind them."""
        return np.arange(size, dtype=np.int32) < self.lengths.astype(np.int32)[:, None]  # half the time of int64

    def padded(self, mask: npt.NDArray[np.bool_], pad: float | str) -> npt.NDArray[Any]:
        """A dense copy, [events, size], with `pad` behind each event's items.

        Args:
            mask: `mask(size)` of this array, or of one with the same lengths; no event is longer than `size`.
            pad: value of the padding.
        """
        array = np.full(mask.shape, pad, self.values.dtype)
        array[mask] = self.items
        return array


def offsets_of(lengths: Ints) -> Ints:
    """Start of each event's items, and the end of the last: [events + 1]."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets
