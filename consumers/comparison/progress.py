"""Tracks which labels are joined, so that no window closes before the labels that were already written.

The job reads comparisons and labels independently. It reads labels twice, because it sorts them by event ID in between, and
other processes may do part of this work. So the comparisons alone must not close a window: after an outage, hours of
comparisons may be read before the first label. Therefore the job takes the partitions' watermarks at one moment. It closes
windows up to these watermarks once all labels written before that moment are joined.
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
    """Compares the group's offsets with the ends of the label topics. Pure."""

    def __init__(self, labels: str, by_event: str) -> None:
        """Args:
        labels: the labels' topic.
        by_event: the internal topic with the labels sorted by event ID.
        """
        self._stages = (labels, by_event)
        self._stage = 0
        self._ends: Ends | None = None
        self._watermarks: Mapping[int, int] = {}

    def clear(self) -> None:
        """Start again, because the assignment changes."""
        self._stage, self._ends = 0, None

    def look(self, lags: Iterable[PartitionLag], watermarks: Mapping[int, int]) -> Mapping[int, int]:
        """Take new offsets; returns for each partition the watermark up to which windows may close now.

        Args:
            lags: the group's lags in both topics.
            watermarks: the partitions' current watermarks.
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
