"""Draws the events of a rollout: keys, variants by the real routing, answers, latencies, errors, and labels that come late."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from millstream.consumers.rollout.clusters import buckets_of
from millstream.consumers.rollout.routing import route
from millstream.schemas.packed import Packed

if TYPE_CHECKING:
    from millstream.consumers.rollout.record import RolloutRecord
    from millstream.schemas.arrays import Floats, Ints, Mask

LOOK: Final = 3000  # ms between two looks
MATURITY: Final = 2 * LOOK
SOON: Final = 50  # ms
BATCH: Final = 10  # events of a micro-batch: those of one variant have the same latency
COUNTRIES: Final = ("DE", "US")
NO_LABEL: Final = -1
_ACCURACY: Final = 0.8  # the baseline's
_REFUSED: Final = 0.003  # share of events that a model refuses
_FAILED: Final = 0.002  # share of the candidate's events that the baseline answers in its place
_UNLABELLED: Final = 0.05


@dataclass(frozen=True, slots=True)
class World:
    """What the candidate and the events are like."""

    effect: float = 0.0  # candidate's accuracy minus baseline's
    slowness: float = 1.0  # candidate's latency, times the baseline's
    errors: float = 0.0  # share of the candidate's events that fail; as many are refused
    lost: float = 0.0  # share of the candidate's wrong answers whose predictions are lost
    keys: int = 0  # 0: each event has a key of its own
    key_spread: float = 0.15  # standard deviation of the accuracy between keys
    slow_labels: bool = False  # the labels of wrong answers come a look after those of right ones


@dataclass(frozen=True, slots=True)
class Events:
    """Events in the order of their predictions. All columns have the shape [events]."""

    ids: Ints
    keys: Packed
    bucket: Ints  # of the keys
    times: Ints  # of the predictions, ms since the epoch
    variant: Ints  # index of the one that routing chose
    country: Ints  # index in `COUNTRIES`
    score: Floats
    outcome: Mask
    ms: Floats
    failed: Mask  # the baseline answered in the candidate's place
    dead: Mask  # the model refused the event
    lost: Mask  # its prediction is not on the topic
    labelled: Ints  # when the label's record was written, ms since the epoch; `NO_LABEL`: never

    def take(self, rows: Ints | Mask) -> Events:
        """These events."""
        at = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        return Events(*(own.take(at) for own in (getattr(self, name) for name in self.__slots__)))

    @classmethod
    def joined(cls, parts: list[Events]) -> Events:
        """All parts."""
        columns: list[list[Any]] = [[getattr(own, name) for own in parts] for name in cls.__slots__]
        joined: list[Any] = [
            Packed.concat(own) if isinstance(own[0], Packed) else np.concatenate(own) for own in columns
        ]
        return cls(*joined)


class Source:
    """The events of one rollout, look by look."""

    def __init__(self, world: World, rng: np.random.Generator) -> None:
        self._world, self._rng = world, rng
        self._next = 0
        # Keys have other names in each rollout, so that other ones go to the candidate.
        self._name = b"%016x" % int(rng.integers(2**62))
        if world.keys:
            weights = np.arange(1, world.keys + 1) ** -0.5
            self._weights = weights / weights.sum()
            spread = np.clip(rng.normal(0, world.key_spread, world.keys), -0.5, 0.15)
            self._of_key = spread - (self._weights * spread).sum()

    def draw(self, record: RolloutRecord, begin: int, end: int, count: int) -> Events:
        """Events that are predicted between two times, ms since the epoch. `record`: routes them."""
        rng, world = self._rng, self._world
        ids = np.arange(self._next, self._next + count)
        self._next += count
        keys, accuracy = self._keys(ids)
        variant = route(record.plan(), keys).variant.astype(np.int64)
        times = np.sort(rng.integers(begin, end, count))
        right = rng.random(count) < accuracy + world.effect * variant
        outcome = rng.random(count) < 0.5
        sure = 0.5 + 0.5 * rng.random(count)
        batches = 20 * np.exp(0.5 * rng.standard_normal((count // BATCH + 1, 2))) * (1, world.slowness)
        is_candidate = variant == 1
        failed = is_candidate & (rng.random(count) < world.errors + _FAILED)
        dead = rng.random(count) < _REFUSED + world.errors * is_candidate
        lost = is_candidate & ~right & (rng.random(count) < world.lost)
        return Events(
            ids, keys, buckets_of(keys), times, variant, rng.integers(0, len(COUNTRIES), count),
            np.where(right == outcome, sure, 1 - sure), outcome, batches[np.arange(count) // BATCH, variant],
            failed & ~dead, dead, lost & ~dead, self._labelled(times, right),
        )  # fmt: skip

    def _keys(self, ids: Ints) -> tuple[Packed, Floats]:
        """The events' keys, and the baseline's accuracy for each."""
        if not self._world.keys:
            return Packed.of([b"%s-%d" % (self._name, own) for own in ids.tolist()]), np.full(len(ids), _ACCURACY)
        chosen = self._rng.choice(self._world.keys, len(ids), p=self._weights)
        return Packed.of([b"%s-%d" % (self._name, own) for own in chosen.tolist()]), _ACCURACY + self._of_key[chosen]

    def _labelled(self, times: Ints, right: Mask) -> Ints:
        rng, count = self._rng, len(times)
        after = rng.integers(SOON, LOOK, count)
        if self._world.slow_labels:
            after = np.where(right, after, rng.integers(LOOK, MATURITY, count))
        return np.where(rng.random(count) < _UNLABELLED, NO_LABEL, times + after)
