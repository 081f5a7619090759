"""Compares ways to decide on the same streams: bounds that hold at any time, tests with one look, and thresholds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.plot import bars
from millstream.consumers.rollout.boundaries import one_sided, quantile_of_normal
from millstream.consumers.rollout.power import required_events

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.schemas.arrays import Floats, Ints, Mask

ACCURACY: Final = 0.8
MARGIN: Final = 0.05
LEVEL: Final = 0.01
EVENTS: Final = 100  # of each variant in a look
LOOKS: Final = 150
EFFECTS: Final = (-0.10, -0.05, -0.025, 0.0, 0.02)
_CHECKS: Final = 10  # good checks after which a threshold promotes; as many steps
_FAILURES: Final = 5  # bad checks after which it rolls back: Flagger's usual `threshold`


@dataclass(frozen=True, slots=True)
class Streams:
    """Counts so far at each look, [rollouts, looks]."""

    events: Ints  # of each variant, [looks]
    baseline: Floats  # right answers
    candidate: Floats

    @property
    def benefit(self) -> Floats:
        """Candidate's minus baseline's accuracy."""
        found: Floats = (self.candidate - self.baseline) / self.events
        return found

    @property
    def variance(self) -> Floats:
        """Of the benefit."""
        shares = (self.baseline / self.events, self.candidate / self.events)
        found: Floats = sum(share * (1 - share) for share in shares) / self.events
        return found


def streams(effect: float, rollouts: int, seed: int) -> Streams:
    """Independent events."""
    rng = np.random.default_rng(seed)
    right = [rng.binomial(EVENTS, ACCURACY + own, (rollouts, LOOKS)).cumsum(1) for own in (0.0, effect)]
    return Streams(EVENTS * np.arange(1, LOOKS + 1), *(own.astype(np.float64) for own in right))


def any_time(given: Streams) -> Ints:
    """Bounds that hold at all looks: 1 promotes, -1 rolls back, at each look."""
    radius = one_sided(given.variance, MARGIN, LEVEL)
    return _signs(given.benefit - radius > -MARGIN, given.benefit + radius < -MARGIN)


def every_look(given: Streams) -> Ints:
    """The usual test, at each look: what a dashboard with p-values invites to."""
    radius = quantile_of_normal(1 - LEVEL) * np.sqrt(given.variance)
    return _signs(given.benefit - radius > -MARGIN, given.benefit + radius < -MARGIN)


def one_look(given: Streams) -> Ints:
    """The usual test, once, at the number of events that gives it 90 % power for an equal candidate."""
    deviation = math.sqrt(ACCURACY * (1 - ACCURACY))
    planned = required_events(deviation, MARGIN, 0.5, level=LEVEL, power=0.9).one_look
    look = min(LOOKS, -(-planned // (2 * EVENTS))) - 1
    found = np.zeros_like(given.benefit, np.int64)
    found[:, look] = every_look(given)[:, look]
    return found


def thresholds(given: Streams) -> Ints:
    """As Flagger does with a custom metric: each look's own accuracy against a limit, good checks step, bad ones add up."""
    own = np.diff(given.candidate, prepend=0, axis=1) / EVENTS
    bad = own < ACCURACY - MARGIN
    return _signs((~bad).cumsum(1) >= _CHECKS, bad.cumsum(1) >= _FAILURES)


def service_only(given: Streams) -> Ints:
    """As Argo Rollouts and Flagger are usually set up: errors and latency, which are the same for both here."""
    good = np.broadcast_to(np.arange(1, LOOKS + 1) >= _CHECKS, given.benefit.shape)
    return _signs(good, np.zeros_like(good))


METHODS: Final[dict[str, Callable[[Streams], Ints]]] = {
    "any time (Millstream)": any_time,
    "test with one look": one_look,
    "test at every look": every_look,
    "threshold on accuracy": thresholds,
    "errors and latency only": service_only,
}


def _signs(promote: Mask, rollback: Mask) -> Ints:
    found: Ints = np.where(rollback, -1, np.where(promote, 1, 0))
    return found


def ends(signs: Ints) -> tuple[float, float, float]:
    """The shares that are promoted and rolled back, and the median look of a decision (NaN without one)."""
    decided = signs != 0
    first = decided.argmax(1)
    kind = np.where(decided.any(1), signs[np.arange(len(signs)), first], 0)
    looks = first[kind != 0] + 1
    return float((kind == 1).mean()), float((kind == -1).mean()), float(np.median(looks)) if len(looks) else math.nan


@dataclass(frozen=True, slots=True)
class Measured:
    """How a method decided on the streams of one effect. Shares are of the rollouts."""

    effect: float
    method: str
    promoted: float
    rolled_back: float
    events: float | None  # median until a decision; None: there was none


def compare(rollouts: int, seed: int) -> list[Measured]:
    """All methods on the same streams, for each effect."""
    found = []
    for number, effect in enumerate(EFFECTS):
        given = streams(effect, rollouts, seed + number)
        for name, method in METHODS.items():
            promoted, rolled_back, look = ends(method(given))
            found.append(Measured(effect, name, promoted, rolled_back, None if math.isnan(look) else look * 2 * EVENTS))
    return found


def table(found: Sequence[Measured], rollouts: int) -> list[str]:
    """A section of the page, as lines of Markdown."""
    lines = [
        "## Other ways to decide",
        "",
        f"{rollouts:,} streams per row; half of the events go to the candidate. The margin is 5 points: a candidate "
        "that is 5 points worse or more must not be promoted, and a better one must not be rolled back. At most "
        f"{2 * EVENTS * LOOKS:,} events, a look after every {2 * EVENTS}. Level: 1 %.",
        "",
        "| candidate's accuracy | method | promoted | rolled back | open | median events until the decision |",
        "|---|---|---|---|---|---|",
    ]
    for own in found:
        still_open = abs(1 - own.promoted - own.rolled_back)
        events = "" if own.events is None else f"{own.events:,.0f}"
        lines.append(
            f"| {100 * own.effect:+.1f} points | {own.method} | {own.promoted:.1%} | {own.rolled_back:.1%} | {still_open:.1%} "
            f"| {events} |"
        )
    return lines


def picture(found: Sequence[Measured]) -> str:
    """An SVG: the events until a decision."""
    groups = [
        (
            f"{100 * effect:+.1f} points",
            {own.method: own.events for own in found if own.effect == effect and own.events is not None},
        )
        for effect in EFFECTS
        if effect != -MARGIN  # where most decisions would be wrong
    ]
    return bars("Median events until a decision, by the candidate's accuracy", groups, ["any time (Millstream)"])
