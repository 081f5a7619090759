"""What one metric says about the candidate, in the same words and numbers in reasons, `rollout status` and reports.

A bound that is not known yet is left out. The latency is shown as a multiple of the baseline's: a benefit of -0.5 is 1.5x.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from millstream.consumers.rollout.latencies import LATENCY

if TYPE_CHECKING:
    from collections.abc import Sequence

Outcome = Literal["pass", "breach", "undecided"]
NOT_KNOWN: Final = "not known yet"
NO_DATA: Final = "no data"
"""In place of an outcome: one version has no events that count."""
SCORE_DRIFT: Final = "score_drift"
"""How far the candidate's scores are from the baseline's. It counts as quality, but needs no labels."""
MOST_TIMES: Final = 100.0
"""A latency that may be more than so many times, or less than one part in so many, of the baseline's is not known yet."""
_MOST_NAMED: Final = 3  # verdicts beside the decisive one that a reason names
_VERBS: Final = {"pass": "is good enough", "breach": "is too bad", "undecided": "is not decided"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one metric says about the candidate."""

    metric: str
    outcome: Outcome
    estimate: float | None = None  # benefit
    lower: float | None = None
    upper: float | None = None
    segment: str | None = None  # None: all events
    service: bool = False
    # The benefit that the bounds were compared with; None: not known, as in verdicts that were read from a topic.
    limit: float | None = field(default=None, compare=False)

    @property
    def needs_labels(self) -> bool:
        """Whether it is based on labels."""
        return not self.service and self.metric != SCORE_DRIFT

    def words(self) -> str:
        """One line: the outcome, the figure, what is known of it, and the limit."""
        said = f"{name_of(self)} {_VERBS[self.outcome]}"
        if self.estimate is None or self.lower is None or self.upper is None:
            return said
        known = interval_text(self)
        interval = (
            f", interval {known}" if known == NOT_KNOWN else f" {known}" if known.startswith("[") else f", {known}"
        )
        what = "" if self.metric == LATENCY else "benefit "
        limit = "" if self.limit is None else f", limit {_number(self.metric, self.limit)}"
        return f"{said}: {what}{estimate_text(self)}{interval}{limit}"


def name_of(verdict: Verdict) -> str:
    """The metric, and the segment if there is one."""
    return verdict.metric if verdict.segment is None else f"{verdict.metric} in {verdict.segment}"


def outcome_word(verdict: Verdict) -> str:
    """The outcome as people understand it: a segment that only guards passes also while nothing is known of it."""
    if verdict.outcome == "breach":
        return verdict.outcome
    if verdict.estimate is None and verdict.metric != SCORE_DRIFT:
        return NO_DATA  # an index of drift may also lack only enough scores, or scores that differ
    if verdict.segment is not None and not _is_known(verdict.lower):
        return "undecided"
    return verdict.outcome


def estimate_text(verdict: Verdict) -> str:
    """The estimate; `-` without one."""
    if verdict.estimate is None or not math.isfinite(verdict.estimate):
        return "-"
    return _number(verdict.metric, verdict.estimate, "+")


def interval_text(verdict: Verdict) -> str:
    """What is known of the benefit, such as `[-0.01, 0.02]` or `at least -0.01`; of the latency, such as `at most 1.4x`."""
    low, high = verdict.lower, verdict.upper
    if verdict.metric == LATENCY:
        low, high = _times(high), _times(low)
    form, unit = ("{:.3g}", "x") if verdict.metric == LATENCY else ("{:.4g}", "")
    ends = [
        "" if value is None or not math.isfinite(value) else form.format(value + 0.0) + unit for value in (low, high)
    ]
    match ends:
        case ["", ""]:
            return NOT_KNOWN
        case [first, ""]:
            return f"at least {first}"
        case ["", second]:
            return f"at most {second}"
    return f"[{ends[0]}, {ends[1]}]"


def limit_text(metric: str, limit: float) -> str:
    """What a metric needs, such as `> -0.01`; of the latency, such as `< 1.5x`."""
    return f"< {_number(metric, limit)}" if metric == LATENCY else f"> {limit:g}"


def first_of(verdicts: Sequence[Verdict], others: str, basis: str = "") -> str:
    """The first verdict in words, and the names of the others.

    Args:
        verdicts: at least one.
        others: what the others are, such as "also too bad".
        basis: what the first one is based on, such as "4,712 labels".
    """
    first, *rest = verdicts
    names = [name_of(own) for own in rest[:_MOST_NAMED]]
    if len(rest) > _MOST_NAMED:
        names.append(f"{len(rest) - _MOST_NAMED} more")
    return "; ".join(filter(None, (first.words(), basis, f"{others}: {', '.join(names)}" if rest else "")))


def closest(verdicts: Sequence[Verdict]) -> Verdict:
    """Of verdicts that pass, the one that decided: of those that need labels, if there is one, that with the least room."""
    return min(verdicts, key=lambda own: (not own.needs_labels, _room(own)))


def _room(verdict: Verdict) -> float:
    """The distance from the estimate to the limit, in half-widths of the interval: above 1 if it passes by its bound."""
    if verdict.estimate is None or verdict.limit is None or not _is_known(verdict.lower):
        return math.inf
    assert verdict.lower is not None
    width = verdict.estimate - verdict.lower
    return (verdict.estimate - verdict.limit) / width if width > 0 else math.inf


def _number(metric: str, value: float, sign: str = "") -> str:
    # Adding 0 makes +0 of the -0 that a benefit is if lower is better and there is no difference.
    return f"{1 - value:.3g}x" if metric == LATENCY else f"{value + 0.0:{sign}.4g}"


def _times(benefit: float | None) -> float | None:
    """The candidate's latency as a multiple of the baseline's; None: not known."""
    if benefit is None or not math.isfinite(benefit):
        return None
    times = 1 - benefit
    return times if 1 / MOST_TIMES <= times <= MOST_TIMES else None


def _is_known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
