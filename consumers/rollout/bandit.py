"""Bandits: shares follow the rewards of the arms. Thompson sampling by probabilities, with discounting and a floor per arm.

Thompson sampling gives an arm as many events as it is probable that the arm is the best. Here this probability is computed
instead of drawn, so the same rewards always lead to the same shares, and an event's propensity is its arm's share. Old rewards
fade by a factor per evaluation, because rewards change. Every arm keeps a floor, so that a bad start is not final and off-policy
evaluation is possible: no propensity is below it.

If rewards have a season and shares change meanwhile, an arm that had more events in the good hours looks better than it is. So
old rewards must fade faster than the season, or rewards must be relative, such as to the time of day.

- W. R. Thompson, "On the Likelihood that One Unknown Probability Exceeds Another in View of the Evidence of Two Samples",
  Biometrika 25, 1933.
- V. Raj, S. Kalyani, "Taming Non-stationary Bandits: A Bayesian Approach", arXiv:1707.09727, 2017: discounted Thompson sampling.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy.special import log_ndtr

from millstream.consumers.rollout.slots import percent
from millstream.pipeline.shares import SLOTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.schemas.arrays import Floats

UNIT: Final = 100
"""Slots in which shares change: 1 %. So the ranges of a bandit are at most a hundred, however long it runs."""
_POINTS: Final = 2001  # of the integral over rewards
_REACH: Final = 8.0  # standard deviations


@dataclass(frozen=True, slots=True)
class BanditSettings:
    """How fast shares follow rewards.

    Raises:
        ValueError: a floor or a discount that can't be.
    """

    arms: int
    floor: int = UNIT  # least slots of each arm
    discount: float = 0.99  # what is left of a reward's weight after an evaluation
    prior_deviation: float = 1.0  # of one event's reward, before there are any
    prior_events: float = 2.0  # weight of the prior, in events

    def __post_init__(self) -> None:
        if self.arms < 2 or self.floor < UNIT or self.floor % UNIT or self.floor * self.arms > SLOTS:
            raise ValueError(
                f"bandit: expected at least two arms and a floor in whole percent, 100 % together at most; found "
                f"{self.arms} arms and a floor of {percent(self.floor)}"
            )
        if not 0 < self.discount <= 1:
            raise ValueError(f"bandit: expected a discount above 0 and at most 1, found {self.discount:g}")


@dataclass(frozen=True, slots=True)
class Arms:
    """What a bandit remembers of each arm. It goes into the control record as JSON."""

    weights: tuple[float, ...]  # discounted number of rewards
    totals: tuple[float, ...]  # discounted sum of rewards
    squares: tuple[float, ...]  # discounted sum of squared rewards
    stopped: tuple[bool, ...]  # arms with a breach; they get no events
    shares: tuple[int, ...]  # slots
    until: int = 0  # rewards that matured until then are in the sums, ms since the epoch

    @classmethod
    def fresh(cls, arms: int) -> Arms:
        """Without rewards: equal shares, as far as whole percent allow."""
        none = (0.0,) * arms
        return cls(none, none, none, (False,) * arms, rounded(np.full(arms, 1 / arms), UNIT, (False,) * arms))

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Arms:
        """What the record says of them: the fields, by name."""
        columns = {own.name: tuple(found[own.name]) for own in fields(cls) if own.name != "until"}
        return cls(**columns, until=found.get("until", 0))


@dataclass(frozen=True, slots=True)
class Rewards:
    """Matured rewards of one arm since the last evaluation. Sums of clusters: see `effective`."""

    events: float
    total: float
    squares: float
    design_effect: float = 1.0  # how many events of one key count as one


def updated(settings: BanditSettings, arms: Arms, rewards: Sequence[Rewards], breached: Sequence[bool]) -> Arms:
    """The arms after an evaluation.

    Args:
        settings: of the bandit.
        arms: before it.
        rewards: of each arm; without events, its old rewards still fade.
        breached: whether a guardrail of the arm is breached: it gets no events from now on. If all are, only the
            baseline goes on.
    """
    keep = settings.discount
    columns = [
        tuple(keep * old + getattr(new, name) / new.design_effect for old, new in zip(before, rewards, strict=True))
        for name, before in (("events", arms.weights), ("total", arms.totals), ("squares", arms.squares))
    ]
    return stopped(settings, replace(arms, weights=columns[0], totals=columns[1], squares=columns[2]), breached)


def stopped(settings: BanditSettings, arms: Arms, breached: Sequence[bool]) -> Arms:
    """The arms after breaches, by the rewards so far. Arguments as of `updated`."""
    now = tuple(old or new for old, new in zip(arms.stopped, breached, strict=True))
    if all(now):
        now = (False, *now[1:])
    found = replace(arms, stopped=now)
    return replace(found, shares=rounded(best_probabilities(settings, found), settings.floor, now))


def best_probabilities(settings: BanditSettings, arms: Arms) -> Floats:
    """The probability of each arm that its mean reward is the highest, [arms]; 0 for stopped ones.

    The mean of an arm is normal around its rewards' mean, which is drawn to the mean of all arms by the prior.
    """
    weights, totals, squares = (np.array(own) for own in (arms.weights, arms.totals, arms.squares))
    middle = totals.sum() / weights.sum() if weights.sum() > 0 else 0.0
    means = (totals + settings.prior_events * middle) / (weights + settings.prior_events)
    spread = squares - 2 * means * totals + weights * means**2
    variances = (spread + settings.prior_events * settings.prior_deviation**2) / (weights + settings.prior_events)
    errors = np.sqrt(np.maximum(variances, 1e-300) / (weights + settings.prior_events))
    running = np.flatnonzero(~np.array(arms.stopped))
    found = np.zeros(len(weights))
    found[running] = _highest(means[running], errors[running])
    return found


def _highest(means: Floats, errors: Floats) -> Floats:
    """The probability that each of some independent normal variables is the highest: an integral over its quantiles."""
    if len(means) == 1:
        return np.ones(1)
    deviations = np.linspace(-_REACH, _REACH, _POINTS)
    density = np.exp(-(deviations**2) / 2)
    found = np.empty(len(means))
    for place, (mean, error) in enumerate(zip(means.tolist(), errors.tolist(), strict=True)):
        points = mean + error * deviations
        others = [other for other in range(len(means)) if other != place]
        below = sum(log_ndtr((points - means[other]) / errors[other]) for other in others)
        found[place] = (density * np.exp(below)).sum() / density.sum()
    shares: Floats = found / found.sum()
    return shares


def rounded(shares: Floats, floor: int, stopped: Sequence[bool]) -> tuple[int, ...]:
    """Shares in slots: whole percent, at least the floor for each running arm, together 10,000 (largest remainders)."""
    running = np.flatnonzero(~np.array(stopped))
    free = (SLOTS - floor * len(running)) // UNIT
    wanted = shares[running] / shares[running].sum() * free
    units = np.floor(wanted).astype(np.int64)
    units[np.argsort(units - wanted, kind="stable")[: free - units.sum()]] += 1
    found = np.zeros(len(shares), np.int64)
    found[running] = floor + units * UNIT
    return tuple(found.tolist())
