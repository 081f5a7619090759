"""How many events a test needs: before an A/B test starts, and as a check of a rollout's settings.

The bounds hold at all times, so they need more events than a test with one look, usually 1.3 to 2.5 times as many. In return the
test may end as soon as it is decided, which is often earlier.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from millstream.consumers.rollout.boundaries import one_sided, quantile_of_normal

POWER: Final = 0.8
"""The usual probability to show a benefit that is there."""
_HALVINGS: Final = 200


@dataclass(frozen=True, slots=True)
class Sizes:
    """Events that are needed, of both variants together."""

    any_time: int  # for a decision with the given power at this number of events, however often it is looked at
    one_look: int  # for a test with a single look at the end


def required_events(
    deviation: float, effect: float, share: float, *, level: float, power: float = POWER, design_effect: float = 1.0
) -> Sizes:
    """The events that show a benefit.

    Args:
        deviation: standard deviation of one event's value; `sqrt(p (1 - p))` of a proportion.
        effect: the true benefit minus the rule's threshold, above 0. The boundaries are made for it.
        share: the candidate's share of the events, above 0 and below 1.
        level: of the promotion, one-sided.
        power: the probability to show it.
        design_effect: how many events of one key count as one.

    Raises:
        ValueError: an argument out of its range.
    """
    if not (
        deviation > 0 and effect > 0 and 0 < share < 1 and 0 < level < 0.5 and 0 < power < 1 and design_effect >= 1
    ):
        raise ValueError(
            "power: expected a deviation and an effect above 0, a share between 0 and 1, a level below 0.5, a power below 1 and "
            f"a design effect of at least 1; found deviation {deviation:g}, effect {effect:g}, share {share:g}, level {level:g}, "
            f"power {power:g}, design effect {design_effect:g}"
        )
    of_one = (
        deviation**2 * design_effect * (1 / share + 1 / (1 - share))
    )  # variance of the difference, times the events
    one_look = of_one * ((quantile_of_normal(1 - level) + quantile_of_normal(power)) / effect) ** 2
    return Sizes(math.ceil(of_one / needed_variance(effect, effect, level, power)), math.ceil(one_look))


def needed_variance(effect: float, scale: float, level: float, power: float = POWER) -> float:
    """The variance of a difference of means at which a benefit is shown.

    Args:
        effect: the true benefit minus the rule's threshold, above 0.
        scale: of the boundaries, as `MetricRule.resolution`.
        level: of the promotion, one-sided.
        power: the probability to show it.
    """
    z = quantile_of_normal(power)
    low, high = 0.0, effect**2  # variances between which the bound reaches the threshold
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        reached = float(one_sided(middle, scale, level)) + z * math.sqrt(middle) <= effect
        low, high = (middle, high) if reached else (low, middle)
    return low
