"""Simulates many rollouts at once: events with keys, labels that come late, and evaluations that the real rules decide on."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from millstream.consumers.rollout.clusters import Clusters
from millstream.consumers.rollout.judging import OUTCOMES, Levels, MetricRule, bounds, bounds_of_difference, signs
from millstream.consumers.rollout.latencies import LEAST_BLOCKS, Slowest, compared
from millstream.consumers.rollout.progress import Evaluation
from millstream.consumers.rollout.sample_ratio import labels_are_off, share_is_confirmed, share_is_off, share_ratio
from millstream.consumers.rollout.steps import decided, started
from millstream.consumers.rollout.verdicts import Verdict
from millstream.pipeline.shares import SLOTS

if TYPE_CHECKING:
    from millstream.consumers.rollout.steps import Steps
    from millstream.schemas.arrays import Floats, Ints, Mask

BUCKETS: Final = 256  # fewer than in use, for speed: variances are known less well
SEGMENTS: Final = 4
GUARDS: Final = 3 + SEGMENTS  # accuracy, errors, latency, and accuracy in each segment
Singles = npt.NDArray[np.floating]
_LATENCIES: Final = 1 << 16
_BINS: Final = 320  # of latencies, from 1 ms on; the last one also holds what lies beyond
_GROWTH: Final = float(np.log(1.02))  # of a bin
_BLOCKS: Final = 64  # latencies are independent here, so a block is chosen at random
_QUANTILE: Final = 0.8  # the slowest fifth is compared
_DRAWS: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class World:
    """What the candidate and the events are like."""

    effect: float = 0.0  # candidate's accuracy minus baseline's
    in_segment: float = 0.0  # the same, in one of four segments beside the effect
    errors: float = 0.005  # candidate's share of events with an error; the baseline's is 0.5 %
    slowness: float = 1.0  # candidate's latency, times the baseline's
    season: float = 0.0  # how far the accuracy of both goes up and down within 24 looks
    lost: float = 0.0  # share of the candidate's wrong answers that are lost
    keys: int = 0  # 0: each event has a key of its own
    key_spread: float = 0.15  # standard deviation of the accuracy between keys
    maturity: int = 0  # looks until a label counts
    never: float = 0.0  # share of the labels of wrong answers that never come; of right answers, a tenth of it
    late: float = 0.0  # share of the labels of the candidate's wrong answers that come after they are mature
    early: bool = False  # labels count when they come: those of the candidate's wrong answers come last
    accuracy: float = 0.8  # baseline's


@dataclass(frozen=True, slots=True)
class Plan:
    """How the rollouts are run and judged."""

    steps: Steps
    accuracy: MetricRule
    most_errors: float = 0.03  # how many more errors the candidate may have
    only_accuracy: bool = False  # no errors, latencies and segments: faster, and a promotion has less to pass
    slower: float = 1.5  # how many times as long as the baseline's slowest fifth the candidate's may take
    independent: bool = False  # wrongly takes events of one key for independent
    level: float = 0.01
    ratio_tolerance: float | None = None  # relative deviation of the sample ratio that is confirmed before a step
    events: int = 500  # in a look
    looks: int = 120


@dataclass(slots=True)
class Found:
    """How the rollouts ended."""

    ends: Counter[str] = field(default_factory=Counter)  # state at the end
    reasons: Counter[str] = field(default_factory=Counter)  # metric that rolled back
    looks: list[int] = field(default_factory=list)  # until the end, of those that ended
    exposed: list[float] = field(default_factory=list)  # events that the candidate answered
    invalid: int = 0  # rollouts whose sample ratio was off at some look

    def add(self, other: Found) -> None:
        """Those of both."""
        self.ends += other.ends
        self.reasons += other.reasons
        self.looks += other.looks
        self.exposed += other.exposed
        self.invalid += other.invalid


class Batch:
    """Some rollouts that run at the same time. A look is one second of the rules' clock."""

    def __init__(self, world: World, plan: Plan, rollouts: int, rng: np.random.Generator) -> None:
        self._world, self._plan, self._rng = world, plan, rng
        self._progress = [started(plan.steps, "candidate", 0).progress for _ in range(rollouts)]
        self._errors = MetricRule("errors", "lower", plan.most_errors, exact=True, service=True)
        self._active = np.ones(rollouts, np.bool_)
        self._off = np.zeros(rollouts, np.bool_)
        self._exposed = np.zeros(rollouts)
        # [rollouts, 2 variants, segments, buckets]: mature events, those of them with a label, and those with the right answer
        self._labels = np.zeros((3, rollouts, 2, SEGMENTS, BUCKETS))
        self._waiting: deque[Floats] = deque()  # the same of the looks whose labels are not mature
        self._all = np.zeros((2, rollouts, 2, BUCKETS))  # events, errors
        self._ratio = Clusters.empty(rollouts, buckets=BUCKETS)  # of the steps before
        self._slow = MetricRule("latency", "lower", float(np.log(plan.slower)), least_clusters=LEAST_BLOCKS)
        self._latencies = np.zeros((rollouts, 2, _BLOCKS, _BINS), np.float32)
        self._typical = ((np.log(20) + 0.5 * rng.standard_normal(_LATENCIES)) / _GROWTH).astype(np.int32)
        if world.keys:
            weights = np.arange(1, world.keys + 1) ** -0.5
            # Keys are drawn from this list: much faster than by their weights each time.
            self._drawn = rng.choice(world.keys, _DRAWS, p=weights / weights.sum())
            self._place = rng.random((rollouts, world.keys), np.float32)  # the keys' hashes by each rollout's salt
            self._bucket = rng.integers(0, BUCKETS, world.keys)
            self._segment = rng.integers(0, SEGMENTS, world.keys)
            self._of_key = np.clip(rng.normal(0, world.key_spread, world.keys), -0.5, 0.15).astype(np.float32)
            self._of_key -= np.float32((weights * self._of_key).sum() / weights.sum())

    def run(self) -> Found:
        """All looks, or until all rollouts have ended."""
        found = Found()
        for look in range(1, self._plan.looks + 1):
            rows = np.flatnonzero(self._active)
            if not len(rows):
                break
            self._arrive(rows, look)
            self._decide(rows, look, found)
        for progress in self._progress:
            found.ends[progress.state if progress.ended else "open"] += 1
        found.exposed = self._exposed.tolist()
        found.invalid = int(self._off.sum())
        return found

    def _arrive(self, rows: Ints, look: int) -> None:
        """The events of a look, and the labels that are mature at its end."""
        world, shape = self._world, (len(rows), self._plan.events)
        place, bucket, segment, accuracy = self._events(rows, shape)
        share = np.array([self._progress[row].share for row in rows.tolist()]) / SLOTS
        variant = place < share[:, None]
        accuracy += world.season * np.sin(2 * np.pi * look / 24)
        accuracy += variant * (world.effect + (segment == 0) * world.in_segment).astype(np.float32)
        right = self._rng.random(shape, np.float32) < accuracy
        kept = self._kept(variant, right, shape)
        side = rows[:, None] * 2 + variant
        self._exposed[rows] += variant.sum(1)
        places = side * BUCKETS + bucket
        self._all[0] += _counted(places, kept, self._all.shape[1:])
        if not self._plan.only_accuracy:
            failed = self._rng.random(shape, np.float32) < np.where(variant, world.errors, 0.005)
            self._all[1] += _counted(places, failed & kept, self._all.shape[1:])
            bins = self._typical[self._rng.integers(0, _LATENCIES, shape, np.int32)]
            bins = np.clip(bins + variant * round(float(np.log(world.slowness)) / _GROWTH), 0, _BINS - 1)
            block = self._rng.integers(0, _BLOCKS, shape, np.int32)
            self._latencies += _counted((side * _BLOCKS + block) * _BINS + bins, kept, self._latencies.shape)
        labelled = kept
        if world.never or world.late:
            missing = np.where(right, world.never / 10, world.never + world.late * variant)
            labelled = kept & (self._rng.random(shape, np.float32) >= missing)
        if self._plan.independent:
            bucket = self._rng.integers(0, BUCKETS, shape)
        places = (side * SEGMENTS + segment) * BUCKETS + bucket
        if world.early:
            first = ~variant | right
            self._labels += self._planes(places, kept & first, labelled & first, right)
            kept, labelled = kept & ~first, labelled & ~first
        self._mature(self._planes(places, kept, labelled, right), look)

    def _planes(self, places: Ints, kept: Mask | np.bool_, labelled: Mask | np.bool_, right: Mask) -> Floats:
        counted = [_counted(places, own, self._labels.shape[1:]) for own in (kept, labelled & right)]
        all_labelled = labelled is kept
        return np.stack(
            [counted[0], counted[0] if all_labelled else _counted(places, labelled, self._labels.shape[1:]), counted[1]]
        )

    def _mature(self, labels: Floats, look: int) -> None:
        """Adds the labels of this look to those that wait, and counts those that have waited long enough."""
        self._waiting.append(labels)
        if len(self._waiting) > self._world.maturity:
            # Events from before the current step began don't count.
            since = np.array([progress.since // 1000 for progress in self._progress])
            self._labels += self._waiting.popleft() * (look - self._world.maturity > since)[None, :, None, None, None]

    def _events(self, rows: Ints, shape: tuple[int, int]) -> tuple[Singles, Ints, Ints, Singles]:
        """The place of each event's key on the slots (0 to 1), its bucket and segment, and the baseline's accuracy."""
        rng, world = self._rng, self._world
        if not world.keys:
            accuracy = np.full(shape, world.accuracy, np.float32)
            places = rng.random(shape, np.float32)
            return places, rng.integers(0, BUCKETS, shape), rng.integers(0, SEGMENTS, shape), accuracy
        keys = self._drawn[rng.integers(0, _DRAWS, shape, np.int32)]
        places = self._place[rows[:, None], keys]
        return places, self._bucket[keys], self._segment[keys], self._of_key[keys] + np.float32(world.accuracy)

    def _kept(self, variant: Mask, right: Mask, shape: tuple[int, int]) -> Mask | np.bool_:
        if not self._world.lost:
            return _ALL
        return ~variant | right | (self._rng.random(shape, np.float32) >= self._world.lost)

    def _decide(self, rows: Ints, look: int, found: Found) -> None:
        epochs = np.array([self._progress[row].epoch for row in rows.tolist()])
        for epoch in np.unique(epochs).tolist():
            group = rows[epochs == epoch]
            for row, evaluation in zip(group.tolist(), self._evaluations(group, look), strict=True):
                before = self._progress[row]
                decision = decided(self._plan.steps, before, evaluation)
                self._progress[row] = decision.progress
                if decision.progress.epoch != before.epoch:
                    self._begin(row, before.share)
                if decision.progress.ended:
                    self._active[row] = False
                    found.looks.append(look)
                    if decision.action == "rollback":
                        found.reasons[decision.reason.split(" is too bad")[0]] += 1

    def _begin(self, row: int, share: int) -> None:
        """A step begins: its evaluation starts from nothing, except for the sample ratio."""
        whole = share_ratio(*self._sides(self._all, np.array([row])), share / SLOTS)
        self._ratio.counts[row] += whole.counts[0]
        self._ratio.sums[row] += whole.sums[0]
        self._labels[:, row] = 0
        self._all[:, row] = 0
        self._latencies[row] = 0

    def _evaluations(self, rows: Ints, look: int) -> list[Evaluation]:
        """Of rollouts in the same step."""
        plan, first = self._plan, self._progress[int(rows[0])]
        levels = Levels.of(plan.level, plan.level, guards=GUARDS, epoch=first.epoch)
        labels = self._labels.sum(3)
        sides = self._sides(labels[1:], rows)
        accuracy = signs(plan.accuracy, bounds(plan.accuracy, *sides, levels))
        service = self._sides(self._all, rows)
        before = Clusters(self._ratio.counts[rows], self._ratio.sums[rows])
        ratio = before + share_ratio(*service, first.share / SLOTS)
        off = share_is_off(ratio, plan.level)
        if self._world.never or self._world.late:
            off |= labels_are_off(*self._sides(labels[:2], rows), plan.level)
        self._off[rows] |= off
        named = [accuracy]
        if not plan.only_accuracy:
            rule = plan.accuracy.in_segments()
            named.append(signs(rule, bounds(rule, *self._sides(self._labels[1:], rows), levels)).min(1))
            named.append(signs(self._errors, bounds(self._errors, *service, levels)))
            named.append(self._latency(rows, levels))
        if plan.ratio_tolerance is not None:
            named.append(share_is_confirmed(ratio, plan.level, plan.ratio_tolerance).astype(np.int64))
        least = np.minimum(*(side.events for side in sides))
        return [
            Evaluation(
                first.epoch,
                1000 * look,
                int(least[at]),
                self._verdicts([int(own[at]) for own in named]),
                ("sample ratio",) if off[at] else (),
            )
            for at in range(len(rows))
        ]

    @staticmethod
    def _sides(counted: Floats, rows: Ints) -> tuple[Clusters, Clusters]:
        """Baseline and candidate of these rollouts. `counted`: [2, rollouts, variants, ...], events and sums."""
        first, second = (Clusters(*counted[:, rows, variant]) for variant in (0, 1))
        return first, second

    def _latency(self, rows: Ints, levels: Levels) -> Ints:
        """The sign of the slowest fifth."""
        difference = compared(*(_slowest(self._latencies[rows, own]) for own in (0, 1)))
        return signs(self._slow, bounds_of_difference(self._slow, difference, levels))

    def _verdicts(self, found: list[int]) -> tuple[Verdict, ...]:
        plan = self._plan
        names = ("accuracy", "sample ratio") if plan.only_accuracy else _METRICS
        if not plan.only_accuracy and plan.accuracy.segment_margin is None:
            found[1] = found[1] or 1  # segments only guard
        return tuple(_VERDICTS[pair] for pair in zip(names, found, strict=False))


_METRICS: Final = ("accuracy", "segment", "errors", "latency", "sample ratio")
_VERDICTS: Final = {
    (name, sign): Verdict(
        "accuracy" if name == "segment" else name,
        outcome,
        segment="a segment" if name == "segment" else None,
        service=name in ("errors", "latency"),
    )
    for name in _METRICS
    for sign, outcome in OUTCOMES.items()
}
"""By name and sign. All segments have one verdict: the worst."""


def _slowest(counts: Floats) -> Slowest:
    """As `latencies.slowest`. `counts`: [rollouts, blocks, bins]."""
    below = counts.sum(1).cumsum(-1)
    edge = (below < _QUANTILE * below[:, -1:]).sum(-1)  # [rollouts]: the bin of the quantile
    bins = np.arange(_BINS)
    logs = _GROWTH * (edge[:, None] + np.maximum(bins - edge[:, None], 0) / (1 - _QUANTILE))
    above = np.where(bins >= edge[:, None], 1.0, 0.0)
    sums, slow = (np.einsum("rkb,rb->rk", counts, own) for own in (logs, above))
    return Slowest(Clusters(counts.sum(-1), sums), slow)


_ALL: Final = np.True_  # all events, without a look at each


def _counted(places: Ints, chosen: Mask | np.bool_, shape: tuple[int, ...]) -> Floats:
    """How many of the chosen events are at each place."""
    found: Floats = (
        np.bincount(places.ravel() if chosen is _ALL else places[chosen], minlength=int(np.prod(shape)))
        .reshape(shape)
        .astype(np.float64)
    )
    return found


def simulate(world: World, plan: Plan, rollouts: int, *, seed: int, batch: int = 125) -> Found:
    """Run so many rollouts, some at a time."""
    found = Found()
    seeds = np.random.SeedSequence(seed).spawn(-(-rollouts // batch))
    for number, own in enumerate(seeds):
        size = min(batch, rollouts - number * batch)
        found.add(Batch(world, plan, size, np.random.default_rng(own)).run())
    return found
