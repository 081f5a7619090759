"""The IDs of the events that a replay answered, to tell apart which predictions are of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from millstream.consumers.replay.buckets import places_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.consumers.replay.answers import Rows
    from millstream.schemas.arrays import Mask

MOST: Final = 4_000_000  # IDs that are kept: 32 MB


@dataclass(frozen=True, slots=True)
class AnsweredIds:
    """The IDs, as `hashes` makes them. Of more events than `MOST`, every second one is kept, or every third one, and so on."""

    ids: npt.NDArray[np.uint64]  # ascending
    every: int

    @classmethod
    def of(cls, rows: Iterable[Rows], events: int) -> AnsweredIds:
        """The IDs of these rows. `events`: how many there are."""
        every = max(-(-events // MOST), 1)
        found = [own["id"][own["id"] % np.uint64(every) == 0] for own in rows]
        return cls(np.unique(np.concatenate([np.zeros(0, np.uint64), *found])), every)

    def has(self, ids: npt.NDArray[np.uint64]) -> Mask:
        """Which of these IDs are kept."""
        there: Mask = places_of(ids, self.ids)[1]
        return there
