"""What is known of a step's variants, as plain numbers for people and for the evaluations' topic."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from millstream.consumers.rollout.verdicts import Verdict

IDLE: Final = 0
"""The epoch of `idle_figures`: those of steps begin at 1."""


@dataclass(frozen=True, slots=True)
class VariantFigures:
    """A variant, and how much of it was read."""

    name: str
    model: str
    version: int
    share: float  # of the events without an override, 0 to 1
    events: int  # of the step, each once; of the sampled keys only
    sampled: float  # share of the variant's keys that is kept, 0 to 1; 1: all


@dataclass(frozen=True, slots=True)
class Figure:
    """One number."""

    variant: str
    metric: str  # such as accuracy, errors or latency_p95: docs/rollouts.md lists them
    segment: str | None  # such as `country=DE`; None: all events
    events: int  # that it is of
    value: float | None  # None: not known yet
    error: float | None = None  # its standard error; None: it has none, or it is not known


@dataclass(frozen=True, slots=True)
class WindowFigures:
    """The figures of a time. Windows begin at whole multiples of `comparison.window`, by the predictions' time."""

    start: int | None  # ms since the epoch; None: since the step began
    end: int | None  # ms since the epoch; None: until now
    figures: tuple[Figure, ...]


@dataclass(frozen=True, slots=True)
class CandidateVerdicts:
    """What the evaluation of one candidate says."""

    candidate: str
    labels: int  # matured events with a label, of the side that has fewer
    invalid: tuple[str, ...]  # why quality can't be compared
    verdicts: tuple[Verdict, ...]


@dataclass(frozen=True, slots=True)
class SampleRatio:
    """The candidate's events by bucket of keys, over all steps of the rollout so far."""

    candidate: str
    expected: tuple[float, ...]  # [buckets]: events that it should have
    found: tuple[float, ...]  # [buckets]


@dataclass(frozen=True, slots=True)
class StepFigures:
    """All figures of a step at a moment."""

    pipeline: str
    rollout: str
    revision: int
    epoch: int
    since: int  # ms since the epoch
    now: int  # ms since the epoch
    unmatured_share: float
    behind: int  # records that are not read yet
    notes: tuple[str, ...]  # sentences for people, such as that keys are sampled
    variants: tuple[VariantFigures, ...]
    candidates: tuple[CandidateVerdicts, ...]
    ratios: tuple[SampleRatio, ...]
    total: WindowFigures
    windows: tuple[WindowFigures, ...]  # ascending, the newest ones
    # When the topic got them, ms since the epoch; None: not known. The same figures may be written twice.
    written: int | None = field(default=None, compare=False)

    def to_json(self) -> dict[str, Any]:
        """Only dicts, lists, texts, finite numbers and None. A bound that is infinite is None."""
        found: dict[str, Any] = _plain(asdict(self))
        return found

    def value(self, variant: str, metric: str, segment: str | None = None) -> float | None:
        """A figure since the step began; None if it is not known."""
        return next(
            (
                own.value
                for own in self.total.figures
                if (own.variant, own.metric, own.segment) == (variant, metric, segment)
            ),
            None,
        )


def idle_figures(pipeline: str, revision: int, now: int, note: str) -> StepFigures:
    """What autopilot says while no rollout is on its way: it is in the place of a step that there can't be.

    Args:
        pipeline: name.
        revision: of the newest record; 0: there is none.
        now: ms since the epoch.
        note: a sentence.
    """
    nothing = WindowFigures(None, None, ())
    rollout = f"{pipeline}-idle"
    return StepFigures(pipeline, rollout, revision, IDLE, now, now, 0.0, 0, (note,), (), (), (), nothing, ())


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {name: _plain(own) for name, own in value.items()}
        case list() | tuple():
            return [_plain(own) for own in value]
        case float() if not math.isfinite(value):
            return None
    return value
