"""What came back for the events, counted exactly by event: pure, fed by the demo's reader."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

RECENT_EVENTS = 4000  # events that the running percentiles look back on
QUANTILES = (0.5, 0.95, 0.99)

Latency = tuple[float, ...]
"""Milliseconds at `QUANTILES`; NaN where nothing was answered yet."""

_PREDICTED, _DEAD = 1, 2


@dataclass(frozen=True, slots=True)
class Tally:
    """How a version stands."""

    sent: int  # events that should have an answer
    predicted: int  # of them, those whose first answer was a prediction
    dead: int  # of them, those whose first answer was a dead letter
    reasons: Mapping[str, int]  # dead letters' reason -> how many events
    duplicates: int  # records beyond an event's first
    strangers: int  # records for no event that was sent

    @property
    def unanswered(self) -> int:
        """Events without any answer."""
        return self.sent - self.predicted - self.dead

    @property
    def adds_up(self) -> bool:
        """Whether each event sent has its prediction or dead letter, and nothing else came."""
        return self.unanswered == 0 and self.strangers == 0


class Results:
    """The answers of one model version to the events 0 to `events` - 1."""

    def __init__(self, events: int) -> None:
        self._state = np.zeros(events, np.uint8)
        self._scores = np.full(events, np.nan, np.float32)
        self._latencies = np.full(events, np.nan, np.float32)  # ms
        self._recent = np.full(
            RECENT_EVENTS, np.nan
        )  # ms, a ring; read by the screen's thread while the collector's writes it
        self._predictions = 0
        self._reasons: Counter[str] = Counter()
        self._duplicates = 0
        self._strangers = 0
        self.answered = 0  # events with an answer
        self.latest: int | None = None  # event of the latest prediction

    def predicted(self, number: int | None, score: float, latency: float) -> None:
        """A prediction for event `number` (None: for none of ours) arrived `latency` ms after the event."""
        if not self._first(number, _PREDICTED) or number is None:
            return
        self._scores[number] = score
        self._latencies[number] = latency
        self._recent[self._predictions % RECENT_EVENTS] = latency
        self._predictions += 1
        self.latest = number

    def died(self, number: int | None, reason: str) -> None:
        """A dead letter of event `number` (None: of none of ours) arrived."""
        if self._first(number, _DEAD):
            self._reasons[reason] += 1

    def _first(self, number: int | None, state: int) -> bool:
        """Note an answer; whether it is its event's first."""
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
        """The prediction for an event; None where there is none."""
        return float(self._scores[number]) if self._state[number] == _PREDICTED else None

    def scores(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """The events with a prediction, and their scores."""
        numbers = np.flatnonzero(self._state == _PREDICTED)
        return numbers, self._scores[numbers]

    def tally(self, sent: int) -> Tally:
        """How it stands when events 0 to `sent` - 1 were sent; an answer to a later one is a stranger's."""
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
        """Of the latest predictions."""
        return _quantiles(self._recent[: min(self._predictions, RECENT_EVENTS)])

    def latency(self) -> Latency:
        """Of all predictions."""
        return _quantiles(self._latencies[self._state == _PREDICTED])


def _quantiles(latencies: npt.NDArray[np.float64] | npt.NDArray[np.float32]) -> Latency:
    if not len(latencies):
        return (float("nan"),) * len(QUANTILES)
    return tuple(float(value) for value in np.quantile(latencies, QUANTILES))
