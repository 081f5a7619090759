"""Counts the predictions and dead letters of each event. Pure; the collector calls it."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

RECENT_EVENTS = 4000  # number of latest predictions in the running percentiles
QUANTILES = (0.5, 0.95, 0.99)

Latency = tuple[float, ...]
"""Milliseconds at `QUANTILES`; NaN if there is no prediction yet."""

_PREDICTED, _DEAD = 1, 2


@dataclass(frozen=True, slots=True)
class Tally:
    """The counts of one model version."""

    sent: int  # events that were sent, so each should have a result
    predicted: int  # events whose first result was a prediction
    dead: int  # events whose first result was a dead letter
    reasons: Mapping[str, int]  # reason of the dead letters -> number of events
    duplicates: int  # further results of events that already have one
    strangers: int  # results that belong to no event that was sent

    @property
    def unanswered(self) -> int:
        """Events without a result."""
        return self.sent - self.predicted - self.dead

    @property
    def adds_up(self) -> bool:
        """Whether each event sent has a prediction or dead letter, and no result belongs to another event."""
        return self.unanswered == 0 and self.strangers == 0


class Results:
    """The results of one model version for the events 0 to `events` - 1."""

    def __init__(self, events: int) -> None:
        self._state = np.zeros(events, np.uint8)
        self._scores = np.full(events, np.nan, np.float32)
        self._latencies = np.full(events, np.nan, np.float32)  # ms
        self._versions = np.zeros(events, np.int32)  # that made the prediction; 0: there is none
        self._recent = np.full(
            RECENT_EVENTS, np.nan
        )  # ms, a ring; read by the screen's thread while the collector's writes it
        self._predictions = 0
        self._reasons: Counter[str] = Counter()
        self._duplicates = 0
        self._strangers = 0
        self.answered = 0  # events with a result
        self.latest: int | None = None  # number of the event with the latest prediction

    def predicted(self, number: int | None, score: float, latency: float, version: int = 1) -> None:
        """Count a prediction.

        Args:
            number: of the event; None: it is not one of the demo's.
            score: the prediction.
            latency: ms from writing to reading.
            version: that made it.
        """
        if not self._first(number, _PREDICTED) or number is None:
            return
        self._scores[number] = score
        self._latencies[number] = latency
        self._versions[number] = version
        self._recent[self._predictions % RECENT_EVENTS] = latency
        self._predictions += 1
        self.latest = number

    def died(self, number: int | None, reason: str) -> None:
        """Count a dead letter of event `number` (None: not an event of the demo)."""
        if self._first(number, _DEAD):
            self._reasons[reason] += 1

    def _first(self, number: int | None, state: int) -> bool:
        """Count a result; returns whether it is the first of its event."""
        if number is None:
            self._strangers += 1
            return False
        if self._state[number]:
            self._duplicates += 1
            return False
        self._state[number] = state
        self.answered += 1
        return True

    def score(self, number: int) -> float | None:
        """The prediction for an event; None if there is none."""
        return float(self._scores[number]) if self._state[number] == _PREDICTED else None

    def scores(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """The events with a prediction, and their scores."""
        numbers = np.flatnonzero(self._state == _PREDICTED)
        return numbers, self._scores[numbers]

    def scores_of(self, version: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """The events that this model version predicted, and their scores."""
        numbers = np.flatnonzero(self._versions == version)
        return numbers, self._scores[numbers]

    def tally(self, sent: int) -> Tally:
        """The counts after events 0 to `sent` - 1 were sent. A result of a later event counts as a stranger."""
        known = self._state[:sent]
        early = int(np.count_nonzero(self._state[sent:]))
        return Tally(
            sent=sent,
            predicted=int(np.count_nonzero(known == _PREDICTED)),
            dead=int(np.count_nonzero(known == _DEAD)),
            reasons=dict(sorted(self._reasons.items(), key=lambda one: (-one[1], one[0]))),
            duplicates=self._duplicates,
            strangers=self._strangers + early,
        )

    def recent_latency(self) -> Latency:
        """The latency of the latest predictions."""
        return _quantiles(self._recent[: min(self._predictions, RECENT_EVENTS)])

    def latency(self) -> Latency:
        """The latency of all predictions."""
        return _quantiles(self._latencies[self._state == _PREDICTED])


def _quantiles(latencies: npt.NDArray[np.float64] | npt.NDArray[np.float32]) -> Latency:
    if not len(latencies):
        return (float("nan"),) * len(QUANTILES)
    return tuple(float(value) for value in np.quantile(latencies, QUANTILES))
