"""Numbers as decimal text, all of an array at once."""

import numpy as np
import numpy.typing as npt

from millstream.schemas.packed import Packed

_POWERS = np.array([10**digits for digits in range(1, 19)], np.int64)


def decimals(numbers: npt.NDArray[np.int64]) -> Packed:
    """The digits of numbers, none of which is negative."""
    lengths = 1 + _POWERS.searchsorted(numbers, side="right")
    width = int(lengths.max(initial=1))
    cells = np.empty((len(numbers), width), np.uint8)
    rest = numbers
    for place in range(width - 1, -1, -1):
        tenth = rest // 10
        cells[:, place] = rest - 10 * tenth
        rest = tenth
    cells += ord("0")
    return Packed(cells.reshape(-1), np.arange(1, len(numbers) + 1) * width - lengths, lengths)
