"""The figures of a step in plain Python: one event at a time, by the definitions in docs/rollouts.md."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.consumers.rollout.clusters import BUCKETS, buckets_of
from tests.consumers.evaluation.scene import MATURITY, SINCE, Event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


@dataclass
class Plain:
    """A metric: its events, mean and standard error."""

    events: int
    value: float | None
    error: float | None


def counted(events: Iterable[Event], variant: int, now: int) -> list[Event]:
    """The variant's events that count in comparisons, each once."""
    seen: dict[str, Event] = {}
    for event in events:
        if event.time >= SINCE and event.rollout == "shop-2" and event.id not in seen:
            seen[event.id] = event
    return [own for own in seen.values() if own.variant == variant and own.randomised and own.time <= now]


def is_mature(event: Event, now: int) -> bool:
    return not event.dead and event.time + MATURITY <= now


def is_labelled(event: Event, now: int) -> bool:
    in_time = -300_000 <= event.label_after <= MATURITY
    return is_mature(event, now) and event.outcome is not None and in_time


def has_answer(event: Event, now: int) -> bool:
    return is_labelled(event, now) and not event.failed and math.isfinite(event.score)


def mean(events: list[Event], value: Callable[[Event], float]) -> Plain:
    """With the jackknife's error over buckets of keys."""
    if not events:
        return Plain(0, None, None)
    counts, sums = [0] * BUCKETS, [0.0] * BUCKETS
    for event in events:
        [bucket] = buckets_of([event.id.encode() if event.key is None else event.key]).tolist()
        if event.dead and event.key is None:
            [bucket] = buckets_of([f"events-0-{event.id.rpartition('-')[2]}".encode()]).tolist()
        counts[bucket] += 1
        sums[bucket] += value(event)
    total, number = sum(sums), sum(counts)
    filled = [place for place in range(BUCKETS) if counts[place]]
    moves = [
        (total - sums[place]) / (number - counts[place]) - total / number for place in filled if number > counts[place]
    ]
    if len(filled) < 2:
        return Plain(number, total / number, None)
    variance = (len(filled) - 1) / len(filled) * sum(move * move for move in moves)
    return Plain(number, total / number, math.sqrt(variance))


def figures(events: list[Event], now: int) -> dict[str, Plain]:
    """The figures of events of one variant."""
    answered = [own for own in events if has_answer(own, now)]
    rewarded = [own for own in events if is_labelled(own, now) and not own.failed and own.revenue is not None]
    return {
        "errors": mean(events, lambda own: own.failed and not own.dead),
        "dead_letters": mean(events, lambda own: own.dead),
        "nan": mean([own for own in events if not own.failed and not own.dead], lambda own: math.isnan(own.score)),
        "accuracy": mean(answered, lambda own: (own.score >= 0.5) == own.outcome),
        "brier": mean(answered, lambda own: (own.score - bool(own.outcome)) ** 2),
        "log_loss": mean(answered, lambda own: -math.log(own.score if own.outcome else 1 - own.score)),
        "reward": mean(rewarded, lambda own: own.revenue or 0.0),
    }


def auc(events: list[Event], now: int) -> float:
    """All pairs of a positive and a negative event."""
    answered = [own for own in events if has_answer(own, now)]
    pairs = [
        1.0 if one.score > other.score else 0.5 if one.score == other.score else 0.0
        for one in answered
        if one.outcome
        for other in answered
        if not other.outcome
    ]
    return sum(pairs) / len(pairs)
