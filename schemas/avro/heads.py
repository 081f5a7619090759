"""Groups a poll's values by their wire header (schema ID)."""

from collections.abc import Iterator

import numpy as np

from millstream.schemas.arrays import Ints
from millstream.schemas.packed import Packed
from millstream.schemas.wire import HEAD_BYTES

# The place value of each byte of a header.
_PLACE_VALUES = np.array([1 << bits for bits in range(8 * (HEAD_BYTES - 1), -1, -8)], np.int64)


def by_head(values: Packed) -> list[tuple[bytes, Ints]]:
    """Each header with its rows, ascending; the most frequent first. A value that is shorter than a header stands for itself."""
    is_whole = values.lengths >= HEAD_BYTES
    rows = np.flatnonzero(is_whole)
    groups: list[tuple[bytes, Ints]] = []
    if len(rows):
        numbers = values.buffer[values.starts[rows, None] + np.arange(HEAD_BYTES)] @ _PLACE_VALUES
        if (numbers == numbers[0]).all():
            groups = [(_head(numbers[0]), rows)]
        else:
            is_first = numbers == numbers[0]
            groups = [(_head(numbers[0]), rows[is_first]), *_sorted_groups(numbers[~is_first], rows[~is_first])]
            groups.sort(key=lambda group: -len(group[1]))
    short: dict[bytes, list[int]] = {}
    for row in np.flatnonzero(~is_whole).tolist():
        short.setdefault(values[row], []).append(row)
    return groups + [(value, np.array(places, np.int64)) for value, places in short.items()]


def _sorted_groups(numbers: Ints, rows: Ints) -> Iterator[tuple[bytes, Ints]]:
    """Each number's header with its rows, at least one.

    Sorting costs the most. So the caller leaves out the first value's header, which usually is the most frequent.
    """
    order = np.argsort(numbers, kind="stable")
    numbers = numbers[order]
    cuts = np.flatnonzero(np.diff(numbers)) + 1
    return zip(map(_head, numbers[[0, *cuts]]), np.split(rows[order], cuts), strict=True)


def _head(number: np.int64) -> bytes:
    return int(number).to_bytes(HEAD_BYTES, "big")
