"""The trend of lag between two measurements: arrival, progress, growth, and the time to drain. Pure."""

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from millstream.topics.lag import PartitionLag, Place

MIN_BACKLOG_SECONDS = 1.0  # a smaller lag only means that events wait for the next commit
WINDOW_SECONDS = 5.0  # seconds for the rates: some commits and some measurements


@dataclass(frozen=True, slots=True)
class Trend:
    """The trend of a partition, a topic, or a group; events and seconds."""

    arrival: float  # arriving events per second
    progress: float  # processed events per second
    stalled: float  # seconds without progress, within the measurements since the last outage; 0 if there is no lag

    @property
    def growth(self) -> float:
        """Events per second by which the lag grows; negative if it shrinks."""
        return self.arrival - self.progress


@dataclass(frozen=True, slots=True)
class _Look:
    at: float
    start: int
    end: int


class LagTrend:
    """Keeps the measurements of a group's lag within the window."""

    def __init__(self, window: float = WINDOW_SECONDS) -> None:
        self._window = window
        self._looks: dict[Place, deque[_Look]] = {}
        self._moved: dict[Place, float] = {}
        self._density: dict[Place, float] = {}  # events per offset
        self._last = 0.0  # when the last measurement was made

    def add(self, at: float, lags: Sequence[PartitionLag]) -> None:
        """Add a measurement at second `at`. Times must grow."""
        # No broker answered meanwhile, so no worker could make progress.
        after_outage, self._last = at - self._last > self._window, at
        here = {(lag.topic, lag.partition) for lag in lags}
        for gone in self._looks.keys() - here:
            del self._looks[gone], self._moved[gone]
        for lag in lags:
            place = (lag.topic, lag.partition)
            looks = self._looks.setdefault(place, deque())
            if after_outage or not looks or looks[-1].start != lag.start or not lag.messages:
                self._moved[place] = at
            looks.append(_Look(at, lag.start, lag.end))
            while len(looks) > 2 and looks[1].at <= at - self._window:
                looks.popleft()
            if lag.messages:
                self._density[place] = lag.messages / (lag.end - lag.start)

    def of(self, place: Place) -> Trend | None:
        """The trend of a partition; None before its second measurement."""
        looks = self._looks.get(place)
        if not looks or len(looks) < 2 or looks[-1].at <= looks[0].at:
            return None
        first, last = looks[0], looks[-1]
        per_second = self._density.get(place, 1.0) / (last.at - first.at)
        return Trend(
            arrival=max(last.end - first.end, 0) * per_second,
            # If the group's offset was reset, progress is not negative.
            progress=max(last.start - first.start, 0) * per_second,
            stalled=last.at - self._moved[place],
        )

    def over(self, places: Iterable[Place]) -> Trend | None:
        """The common trend of several partitions; None before the second measurement of each."""
        trends = [self.of(place) for place in places]
        known = [trend for trend in trends if trend is not None]
        if not known or len(known) < len(trends):
            return None
        return Trend(
            arrival=sum(trend.arrival for trend in known),
            progress=sum(trend.progress for trend in known),
            stalled=min(trend.stalled for trend in known),
        )


def drain_seconds(messages: int, trend: Trend | None) -> float | None:
    """Seconds until the lag is gone at this trend: 0 if there is none, infinite if it doesn't shrink."""
    if not messages:
        return 0.0
    if trend is None:
        return None
    return messages / -trend.growth if trend.growth < 0 else float("inf")


def drain_text(drain: float | None) -> str:
    """A time to drain in words."""
    if drain is None:
        return "?"
    return "never" if math.isinf(drain) else f"{drain:,.0f} s"
