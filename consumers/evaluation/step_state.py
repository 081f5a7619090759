"""All that is known of a step, and what follows from it. It has no clock and no Kafka."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from millstream.consumers.evaluation.figures import SampleRatio, StepFigures, VariantFigures
from millstream.consumers.evaluation.held import Bounds, HeldEvents
from millstream.consumers.evaluation.judge import judged, quality_of
from millstream.consumers.evaluation.outlook import outlooks
from millstream.consumers.evaluation.ratio import step_ratio
from millstream.consumers.evaluation.rows import Rows, event_row
from millstream.consumers.evaluation.segments import Segments
from millstream.consumers.evaluation.sides import sides_of
from millstream.consumers.evaluation.slow_calls import latency_outlook
from millstream.consumers.evaluation.step_figures import total_figures, window_figures
from millstream.consumers.rollout.bandit import Rewards
from millstream.consumers.rollout.clusters import Clusters
from millstream.consumers.rollout.progress import Evaluation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.consumers.evaluation.compared import Halves, Pairs
    from millstream.consumers.evaluation.distributions import Reference
    from millstream.consumers.evaluation.figures import CandidateVerdicts
    from millstream.consumers.evaluation.segments import Segment
    from millstream.consumers.evaluation.settings import StepSettings
    from millstream.consumers.evaluation.sides import Side


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Which events of a step came. Times are in ms since the epoch."""

    events: int
    oldest: int | None = None  # time of the first event; None: there is none
    newest: int | None = None  # of the last one


class StepState:
    """The events of a step with their labels, and the evaluation that follows from them at any time."""

    def __init__(self, settings: StepSettings, earlier: Mapping[str, Clusters] | None = None) -> None:
        """Args:
        settings: of the step.
        earlier: the sample ratios of the rollout's earlier steps, by candidate.
        """
        self.settings = settings
        self.segments = Segments(settings.segments)
        self.dtype = event_row(len(settings.segments), len(settings.fields))
        bounds = Bounds(settings.max_events, settings.maturity, settings.early)
        self.held = HeldEvents(self.dtype, len(settings.variants), bounds)
        self._earlier = dict(earlier or {})
        self.reference: Reference | None = None
        self.unreadable = 0  # records that broke the decoder
        self.read_until = 0  # all records of events before this time were read, ms since the epoch

    @property
    def rows(self) -> Rows:
        """All events, each once."""
        return self.held.settle(self.read_until)

    @property
    def arrivals(self) -> Arrivals:
        """Which events came since the step began, whatever chose their variant."""
        times = self._of_step(self.rows)["time"]
        return Arrivals(len(times), int(times.min()), int(times.max())) if len(times) else Arrivals(0)

    @property
    def events_before(self) -> float:
        """How many events the baseline answered in the time before the step that was read."""
        if not self.settings.before:
            return 0.0
        rows = self.rows
        before = (rows["time"] < self.settings.since) & (rows["variant"] == 0) & rows["randomised"]
        return int(before.sum()) / self.held.sampled[0]

    def evaluation(self, now: int, candidate: int) -> Evaluation:
        """What strategies decide on; see `StepEvaluator`."""
        rows = self._counted
        sides = sides_of(self.settings, rows, now)
        quality = quality_of(self.settings, sides[0], sides[candidate])
        found = self._judged(rows, sides, quality, self._segments(rows), candidate, now)
        return Evaluation(
            self.settings.epoch, now, found.labels, found.verdicts, found.invalid, self._unmatured_share(sides)
        )

    def rewards(self, after: int, until: int) -> tuple[Rewards, ...]:
        """The rewards that matured in this time; see `StepEvaluator`."""
        rows, settings = self.rows, self.settings
        sign = next((-1 if rule.better == "lower" else 1 for rule in settings.quality if rule.name == "reward"), 1)
        found = []
        for side in sides_of(settings, rows, until):
            matured_at = side.rows["time"] + settings.maturity
            mask = side.labelled & side.answered & np.isfinite(side.rows["reward"]) & (matured_at > after)
            values = sign * side.rows["reward"][mask]
            effect = _design_effect(Clusters.of(side.bucket[mask], values), values)
            found.append(Rewards(float(len(values)), float(values.sum()), float(np.square(values).sum()), effect))
        return tuple(found)

    def figures(self, now: int, behind: int = 0) -> StepFigures:
        """All figures; see `StepEvaluator`. `behind`: records that are not read yet."""
        rows, settings = self._counted, self.settings
        sides = sides_of(settings, rows, now)
        segments = self._segments(rows)
        sampled = self.held.sampled
        ratios = {
            own.name: ratio
            for number, own in enumerate(settings.variants[1:], 1)
            if (ratio := self._ratio(rows, number, now)) is not None
        }
        candidates: list[CandidateVerdicts] = []
        told: list[str] = []
        for number in settings.candidates:
            quality = quality_of(settings, sides[0], sides[number])
            candidates.append(self._judged(rows, sides, quality, segments, number, now))
            kept = min(sampled[0], sampled[number])
            told += outlooks(settings, (sides[0], sides[number]), quality, candidates[-1], kept, now)
        return StepFigures(
            settings.pipeline,
            settings.rollout,
            settings.revision,
            settings.epoch,
            settings.since,
            now,
            self._unmatured_share(sides),
            behind,
            (*self._notes(), *self._slow(sides, candidates), *told),
            tuple(
                VariantFigures(own.name, own.model, own.version, share, len(side.rows), part)
                for own, share, side, part in zip(settings.variants, settings.shares, sides, sampled, strict=True)
            ),
            tuple(candidates),
            tuple(
                SampleRatio(name, tuple(ratio.counts.tolist()), tuple(ratio.sums.tolist()))
                for name, ratio in ratios.items()
            ),
            total_figures(settings, sides, segments, self.reference, self._of_step(rows)),
            window_figures(settings, sides),
        )

    def _judged(
        self,
        rows: Rows,
        sides: tuple[Side, ...],
        quality: Mapping[str, Halves | Pairs],
        segments: list[Segment],
        candidate: int,
        now: int,
    ) -> CandidateVerdicts:
        return judged(
            self.settings,
            (sides[0], sides[candidate]),
            name=self.settings.variants[candidate].name,
            quality=quality,
            segments=segments,
            ratio=self._ratio(rows, candidate, now),
            reference=self.reference,
            rows=self._of_step(rows),
        )

    def _segments(self, rows: Rows) -> list[Segment]:
        return list(self.segments.most_frequent(rows))

    @property
    def _counted(self) -> Rows:
        """The events that count in comparisons. Of a bandit, older ones count only for rewards."""
        return self.rows if self.settings.rewards_since is None else self._of_step(self.rows)

    def _of_step(self, rows: Rows) -> Rows:
        return rows[rows["time"] >= self.settings.since] if self.settings.begin < self.settings.since else rows

    def _ratio(self, rows: Rows, candidate: int, now: int) -> Clusters | None:
        """Over all steps; None if no step has one."""
        own = step_ratio(self.settings, rows, self.held.sampled, candidate, now)
        earlier = self._earlier.get(self.settings.variants[candidate].name)
        if own is None or earlier is None:
            return earlier if own is None else own
        return own + earlier

    def _slow(self, sides: tuple[Side, ...], candidates: Sequence[CandidateVerdicts]) -> list[str]:
        """Why latencies have no interval yet."""
        sampled = self.held.sampled
        return [
            said
            for number, own in zip(self.settings.candidates, candidates, strict=True)
            for said in latency_outlook(
                self.settings, sides[0], sides[number], own, is_thinned=min(sampled[0], sampled[number]) < 1
            )
        ]

    @staticmethod
    def _unmatured_share(sides: tuple[Side, ...]) -> float:
        """Of the predictions of all variants."""
        predictions = sum(int((~side.rows["dead"]).sum()) for side in sides)
        mature = sum(int(side.mature.sum()) for side in sides)
        return 1 - mature / predictions if predictions else 0.0

    def _notes(self) -> list[str]:
        notes = [
            f"{own.name}: only the events of {part:.3%} of its keys are kept: raise rollout.max_events to keep more"
            for own, part in zip(self.settings.variants, self.held.sampled, strict=True)
            if part < 1
        ]
        if self.unreadable:
            notes.append(f"records that break the decoder, and are left out: {self.unreadable:,} (the log says why)")
        if self.held.dropped_labels:
            notes.append(
                f"{self.held.dropped_labels:,} labels without an event were dropped, because there were too many"
            )
        return notes


def _design_effect(found: Clusters, values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    """How many events count as one, because those of a key are alike."""
    spread = float(values.var()) if len(values) > 1 else 0.0
    effect = float(found.variance) * len(values) / spread if spread > 0 else 1.0
    return max(effect, 1.0) if np.isfinite(effect) else 1.0
