"""Confidence sequences for the mean of bounded and independent values, such as a clipped loss, for any number of events.

I. Waudby-Smith, A. Ramdas, "Estimating means of bounded random variables by betting", Journal of the Royal Statistical Society
B 86(1), 2024, Theorem 2: the predictable plug-in empirical Bernstein confidence sequence. The bets and the means are those of
before a batch of events, so they are predictable, and the whole batch is added in one step. Every state is an exponent of a
supermartingale of its own partition, so the states of partitions can be added.

The events must be independent: use clusters.py where events of one key are alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from millstream.consumers.rollout.proportions import Interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.schemas.arrays import Floats

_MOST_BET: Final = 0.5


@dataclass(frozen=True, slots=True)
class BoundedMean:
    """What is known of the mean of values from 0 to 1. Scale others first."""

    level: float  # of the interval, for which the bets are chosen
    events: int = 0
    total: float = 0.0
    spread: float = 0.0  # sum of squared distances from the mean before
    bets: float = 0.0  # sum of the bets
    weighted: float = 0.0  # sum of bet times value
    paid: float = 0.0  # sum of the squared distances times psi(bet)

    def added(self, values: Floats) -> BoundedMean:
        """With a batch of values, [events].

        Raises:
            ValueError: a value is not from 0 to 1.
        """
        if not len(values):
            return self
        if not (values.min() >= 0 and values.max() <= 1):
            raise ValueError(
                f"bounded metric: expected values from 0 to 1, found {values.min():g} to {values.max():g}: clip and scale them"
            )
        mean = (0.5 + self.total) / (self.events + 1)
        variance = (0.25 + self.spread) / (self.events + 1)
        at = self.events + (len(values) + 1) / 2  # in the middle of the batch; its size is known before its values
        bet = min(_MOST_BET, np.sqrt(2 * np.log(2 / self.level) / (variance * at * np.log(1 + at))))
        squares = float(np.square(values - mean).sum())
        return replace(
            self,
            events=self.events + len(values),
            total=self.total + float(values.sum()),
            spread=self.spread + squares,
            bets=self.bets + bet * len(values),
            weighted=self.weighted + bet * float(values.sum()),
            paid=self.paid + squares * float(-np.log1p(-bet) - bet),
        )

    def __add__(self, other: BoundedMean) -> BoundedMean:
        """What two partitions know together. Both must have the same level."""
        summed = {
            name: getattr(self, name) + getattr(other, name)
            for name in ("events", "total", "spread", "bets", "weighted", "paid")
        }
        return replace(self, **summed)

    def interval(self) -> Interval:
        """It misses the mean at any time with a probability of at most `level`."""
        if not self.bets:
            return Interval(np.array(0.0), np.array(1.0))
        middle, radius = self.weighted / self.bets, (np.log(2 / self.level) + self.paid) / self.bets
        return Interval(np.array(max(0.0, middle - radius)), np.array(min(1.0, middle + radius)))


def summed(parts: Sequence[BoundedMean]) -> BoundedMean:
    """What all partitions know together; at least one."""
    first, *others = parts
    for part in others:
        first += part
    return first


def bounded_difference(baseline: BoundedMean, candidate: BoundedMean) -> Interval:
    """Candidate's minus baseline's mean. It misses with a probability of at most the sum of both levels."""
    first, second = baseline.interval(), candidate.interval()
    return Interval(second.lower - first.upper, second.upper - first.lower)
