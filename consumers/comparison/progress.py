"""How far the labels are joined, as against how far the comparisons are read.

Both topics are read as fast as they come, and labels twice (they are sorted by event id between), maybe by other processes. So
a window must not close by the comparisons alone: after an outage hours of them may be read before the first label is. The
watermarks that the partitions have at one moment count for closing once all labels written before that moment are joined.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.topics.lag import PartitionLag

Ends = dict[tuple[str, int], int]
"""Partition -> offset of the next record."""


class LabelProgress:
    """Looks at the group's offsets from time to time. Pure."""

    def __init__(self, labels: str, by_event: str) -> None:
        """Args:
        labels: the labels' topic.
        by_event: the topic of the labels sorted by event id.
        """
        self._stages = (labels, by_event)
        self._stage = 0
        self._ends: Ends | None = None
        self._watermarks: Mapping[int, int] = {}

    def clear(self) -> None:
        """Start anew: the assignment changes."""
        self._stage, self._ends = 0, None

    def look(self, lags: Iterable[PartitionLag], watermarks: Mapping[int, int]) -> Mapping[int, int]:
        """Take a look; returns the watermarks that count for closing now, of each partition.

        Args:
            lags: of the group in both topics.
            watermarks: of the partitions, now.
        """
        found = {(lag.topic, lag.partition): lag for lag in lags}
        if self._ends is None:
            self._stage, self._watermarks = 0, dict(watermarks)
            self._ends = self._ends_of(found)
        while all(
            found[place].messages == 0 or (found[place].committed or 0) >= end for place, end in self._ends.items()
        ):
            if self._stage == len(self._stages) - 1:
                self._ends = None
                return self._watermarks
            self._stage += 1
            self._ends = self._ends_of(found)
        return {}

    def _ends_of(self, found: Mapping[tuple[str, int], PartitionLag]) -> Ends:
        return {place: lag.end for place, lag in found.items() if place[0] == self._stages[self._stage]}
