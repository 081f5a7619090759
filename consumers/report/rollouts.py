"""The sections of a report about rollouts: what became of each, and what the evaluations of its steps say."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from millstream.consumers.comparison.show import time_text
from millstream.consumers.comparison.verdict import DEVIATIONS
from millstream.consumers.report.chart import FIRST, QUIET, SECOND, Band, Bars, Layer, Line, Plot, bars_svg, svg
from millstream.consumers.report.page import Numbers, Shown
from millstream.consumers.rollout.change_text import change_text
from millstream.consumers.rollout.judging import breaches
from millstream.consumers.rollout.progress import ENDED
from millstream.consumers.rollout.slots import percent
from millstream.consumers.rollout.verdicts import NO_DATA, estimate_text, interval_text, name_of, outcome_word
from millstream.schemas.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.consumers.evaluation.figures import CandidateVerdicts, Figure, StepFigures
    from millstream.consumers.rollout.record import RolloutRecord
    from millstream.consumers.rollout.verdicts import Verdict

_COLOURS: Final = (FIRST, SECOND, "#2f7d32", "#7b1fa2")
_OUTCOMES: Final = {"pass": "good enough", "breach": "too bad", "undecided": "not decided", NO_DATA: NO_DATA}
_NO_PLOT: Final = {"events", "matured", "labelled"}
"""Figures that are counts: the tables have them."""
_NO_FIGURES: Final = "It has no evaluation by autopilot, so the page has no figures of each variant"
_WHO_EVALUATES: Final = (
    "`millstream autopilot` computes the figures of each variant while a rollout is on its way, also those of a manual one. "
    "The figures of the predictions are of all variants together."
)


def rollout_sections(steps: Sequence[StepFigures], changes: Sequence[RolloutRecord | None]) -> list[Shown]:
    """The newest rollout, and the newest one that was evaluated; empty if there was none.

    Args:
        steps: of one pipeline, in their order.
        changes: that count of the control topic, the oldest first. None: somebody deleted the record.
    """
    records = [own for own in changes if own is not None]
    deleted = bool(changes) and changes[-1] is None
    found = []
    if records and (not steps or records[-1].rollout != steps[-1].rollout):
        found.append(_unevaluated(records, deleted=deleted))
    if steps:
        found.append(_evaluated(steps, records, deleted=deleted))
    return found


def _unevaluated(changes: Sequence[RolloutRecord], *, deleted: bool) -> Shown:
    """The newest rollout, by its changes alone: a manual one needs no autopilot, and another one may have begun just now."""
    last = changes[-1]
    variants = [
        (own.name, f"{own.model} version {own.version}, {percent(share)}")
        for own, share in zip(last.variants, last.shares, strict=True)
    ]
    return Shown(
        title=f"Rollout {last.rollout}",
        verdict=f"Rollout {last.rollout} {_became(last.rollout, changes, deleted=deleted)}. {_NO_FIGURES}",
        basis=[("strategy", last.strategy), *variants, *_changes(last.rollout, changes), ("note", _WHO_EVALUATES)],
        tables=[],
        plots=[],
    )


def _evaluated(steps: Sequence[StepFigures], changes: Sequence[RolloutRecord], *, deleted: bool) -> Shown:
    last = steps[-1]
    mine = [step for step in steps if step.rollout == last.rollout]
    return Shown(
        title=f"Rollout {last.rollout}",
        verdict=_verdict(last, _became(last.rollout, changes, deleted=deleted)),
        basis=[*_basis(last, len(mine)), *_changes(last.rollout, changes)],
        tables=[*_verdicts(last), _figures(last)],
        plots=[*_benefits(last), *((svg(plot), plot.notes) for plot in _windows(last))],
    )


def _verdict(step: StepFigures, became: str) -> str:
    """What became of the rollout, and what the newest step's evaluation says of each candidate."""
    said = [f"{_name(step, each.candidate)}: {_of_candidate(each)}" for each in step.candidates]
    evaluated = f"step {step.epoch}: " + ("; ".join(said) or "no candidate was evaluated yet")
    return f"Rollout {step.rollout}{f' {became}. Newest evaluation, ' if became else ', '}{evaluated}"


def _became(rollout: str, changes: Sequence[RolloutRecord], *, deleted: bool) -> str:
    """How the rollout ended, or its state now; and whether another one came after it. Empty: the control topic is empty.

    Args:
        rollout: which one.
        changes: of all rollouts.
        deleted: whether the record of the newest rollout was deleted.
    """
    mine = [own for own in changes if own.rollout == rollout]
    last = changes[-1] if changes else None
    verb = "was" if deleted else "is"
    told = []
    if mine and mine[-1].state in ENDED:
        ended = next(own for own in mine if own.state == mine[-1].state)  # an override may have come later
        told.append(f"was {_state(ended)} on {_when(ended.at)} by {ended.by} ({ended.reason})")
    elif mine and mine[-1] is last:
        told.append(
            f"{verb} {_state(last)}; its newest change is of {_when(last.at)}: {last.action} by {last.by} ({last.reason})"
        )
    if last is not None and last.rollout != rollout:
        told.append(f"was followed by the rollout {last.rollout}, which has no evaluation, and {verb} {_state(last)}")
    elif last is not None and deleted:
        told.append("its record was deleted since, so the pipeline file's version answers")
    return ", and ".join(told)


def _state(record: RolloutRecord) -> str:
    return record.state.replace("_", " ")


def _changes(rollout: str, changes: Sequence[RolloutRecord]) -> Iterator[tuple[str, str]]:
    """The rollout's changes that the control topic still has."""
    for own in changes:
        if own.rollout == rollout:
            yield "change", f"{_when(own.at)} {change_text(own)}"


def _name(step: StepFigures, variant: str) -> str:
    found = next((each for each in step.variants if each.name == variant), None)
    return variant if found is None else f"{variant} (version {found.version}, {100 * found.share:g} %)"


def _of_candidate(found: CandidateVerdicts) -> str:
    if bad := breaches(found.verdicts, found.invalid):
        return "too bad: " + ", ".join(map(_said, bad))
    if found.invalid:
        return f"the comparison is invalid: {' '.join(found.invalid)}"
    good = [each for each in found.verdicts if outcome_word(each) == "pass"]
    open_ = [each for each in found.verdicts if each.outcome == "undecided"]
    rest = len(found.verdicts) - len(good) - len(open_)  # segments that only guard
    unknown = f"; nothing is known yet of {counted(rest, 'segment')}" if rest else ""
    if open_:
        return (
            f"not decided yet: {len(good)} of {len(good) + len(open_)} metrics are good enough, open: "
            f"{', '.join(map(_said, open_))}{unknown}"
        )
    return f"all {len(good)} metrics are good enough, {found.labels:,} labels{unknown}"


def _said(verdict: Verdict) -> str:
    return f"{name_of(verdict)} {_benefit(verdict)}" if verdict.estimate is not None else name_of(verdict)


def _benefit(verdict: Verdict) -> str:
    """The estimate and its interval; `-` without an estimate."""
    return "-" if verdict.estimate is None else f"{estimate_text(verdict)} {interval_text(verdict)}"


def _basis(step: StepFigures, steps: int) -> Iterator[tuple[str, str]]:
    yield (
        "step",
        f"{step.epoch}, since {_when(step.since)}; evaluated {_when(step.now)} (UTC), revision {step.revision}",
    )
    yield "steps evaluated", f"{steps}"
    for variant in step.variants:
        sampled = f", a sample of {100 * variant.sampled:.3g} % of the keys" if variant.sampled < 1 else ""
        yield (
            variant.name,
            f"{variant.model} version {variant.version}, {100 * variant.share:g} %, {variant.events:,} events{sampled}",
        )
    yield "labels still to come", f"{100 * step.unmatured_share:.1f} % of the events are not mature yet"
    if step.behind:
        yield "not read yet", f"{step.behind:,} records"
    for note in step.notes:
        yield "note", note


def _when(milliseconds: int) -> str:
    try:
        return time_text(milliseconds)
    except (ValueError, OverflowError, OSError):  # a foreign record may say anything
        return f"{milliseconds} ms"


def _verdicts(step: StepFigures) -> Iterator[Numbers]:
    for each in step.candidates:
        head = [each.candidate, "outcome", "benefit, with its interval"]
        rows = [
            [
                own.metric if own.segment is None else f"{own.metric}, {own.segment}",
                _OUTCOMES[outcome_word(own)],
                _benefit(own),
            ]
            for own in each.verdicts
        ]
        yield Numbers(head, rows)


def _figures(step: StepFigures) -> Numbers:
    """All figures since the step began: a row for each metric and segment, a column for each variant."""
    names = [each.name for each in step.variants]
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for figure in step.total.figures:
        key = (figure.metric, figure.segment or "")
        rows.setdefault(key, {})[figure.variant] = _number(figure)
    return Numbers(
        ["since the step began", *names],
        [
            [metric if not segment else f"{metric}, {segment}", *(found.get(name, found.get("", "")) for name in names)]
            for (metric, segment), found in rows.items()
        ],
    )


def _number(figure: Figure) -> str:
    if figure.value is None or not math.isfinite(figure.value):
        return "-"
    if figure.metric in _NO_PLOT:
        return f"{figure.value:,.0f}"
    return f"{figure.value:,.4f}" if figure.error is None else f"{figure.value:,.4f} ± {DEVIATIONS * figure.error:,.4f}"


def _benefits(step: StepFigures) -> Iterator[tuple[str, Sequence[str]]]:
    """The benefit of each metric that has segments, in all events and in each segment; and of the others together."""
    note = "Right of 0, the candidate is better. The intervals hold at all looks at once."
    for each in step.candidates:
        divided = {own.metric for own in each.verdicts if own.segment is not None}
        for metric in (*sorted(divided), None):
            mine = [own for own in each.verdicts if (own.metric == metric if metric else own.metric not in divided)]
            known = [own for own in mine if own.estimate is not None]
            if not known:
                continue
            title = f"Benefit of {each.candidate}" + (f": {metric}" if metric else "")
            labels = [(own.segment or "all events") if metric else own.metric for own in known]
            ends = [[_or_nan(getattr(own, end)) for own in known] for end in ("estimate", "lower", "upper")]
            yield bars_svg(title, "benefit", Bars(labels, FIRST, *ends), 0.0), [note]


def _windows(step: StepFigures) -> Iterator[Plot]:
    """Each metric over the windows of the step, for all variants."""
    names = [each.name for each in step.variants]
    metrics = dict.fromkeys(
        each.metric
        for window in step.windows
        for each in window.figures
        if each.segment is None and each.variant in names
    )
    for metric in (each for each in metrics if each not in _NO_PLOT):
        layers: list[Layer] = []
        for name, colour in zip(names, (*_COLOURS, *[QUIET] * len(names)), strict=False):
            points = [
                (((window.start or 0) + (window.end or 0)) / 2, each)
                for window in step.windows
                for each in window.figures
                if (each.variant, each.metric, each.segment) == (name, metric, None)
            ]
            if not points:
                continue
            times, values = [time for time, _ in points], [_or_nan(each.value) for _, each in points]
            radii = [DEVIATIONS * each.error if each.error is not None else math.nan for _, each in points]
            lows, highs = ([at + sign * radius for at, radius in zip(values, radii, strict=True)] for sign in (-1, 1))
            layers += [Band(colour, times, lows, highs), Line(name, colour, times, values, points=True)]
        if any(math.isfinite(y) for layer in layers if isinstance(layer, Line) for y in layer.ys):
            notes = ["Bands: 95 %, of each window alone."]
            yield Plot(f"{metric} in each window", "prediction time (UTC)", metric, layers, times=True, notes=notes)


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value
