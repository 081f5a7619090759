"""What autopilot found in the current step of a rollout: for people, and as JSON."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from millstream.consumers.evaluation.figures import StepFigures
from millstream.consumers.evaluation.topic import Evaluations, read_figures
from millstream.consumers.rollout.changes import Memory
from millstream.consumers.rollout.declared import metric_rules
from millstream.consumers.rollout.judging import breaches
from millstream.consumers.rollout.latencies import LATENCY
from millstream.consumers.rollout.progress import ENDED
from millstream.consumers.rollout.record import RolloutRecord
from millstream.consumers.rollout.rounded import ago, span
from millstream.consumers.rollout.verdicts import (
    Verdict,
    estimate_text,
    interval_text,
    limit_text,
    name_of,
    outcome_word,
)
from millstream.pipeline.pipeline import Pipeline
from millstream.pipeline.printable import printable
from millstream.schemas.errors import SchemaError
from millstream.schemas.store import SchemaStore
from millstream.topics.errors import TopicsError

OLD_MS: Final = 60_000  # autopilot publishes every 10 s
OLD_IDLE_MS: Final = 120_000  # every minute, while no rollout is on its way
_ADVICE: Final = "autopilot: would "


def evaluations_of(pipeline: Pipeline, store: SchemaStore) -> Evaluations | str:
    """What autopilot has published, or why it can't be read."""
    try:
        return read_figures(pipeline, store)
    except (TopicsError, SchemaError) as error:
        return f"not known: {error}"


def figures_of(published: Evaluations | str, record: RolloutRecord, now: int) -> StepFigures | str:
    """The newest figures of the record's step, or why there are none. `now`: ms since the epoch."""
    if isinstance(published, str):
        return published
    try:
        progress = Memory.of(record).progress
    except ValueError as error:
        return f"not known: {error}"
    steps = [own for own in published.steps if own.rollout == record.rollout]
    # After the end, the last step's figures are what it was decided on.
    found = [own for own in steps if own.epoch == progress.epoch or record.state in ENDED]
    return found[-1] if found else _not_evaluated(steps, progress.since, now)


def _not_evaluated(before: Sequence[StepFigures], since: int, now: int) -> str:
    """Why a step that began lately has no figures. `before`: of earlier steps, or of this one before it was resumed."""
    begun = f"not since the step began {ago(now - since)}"
    if not before:
        return f"{begun}: `millstream autopilot` evaluates it, within a minute after it has started"
    return (
        f"{begun}: the newest evaluation is of before, {ago(now - before[-1].now)}. `millstream autopilot` evaluates the step "
        "within half a minute, if it runs"
    )


def idle_of(published: Evaluations | str, now: int) -> StepFigures | None:
    """What autopilot says while no rollout is on its way; None: it hasn't said anything lately. `now`: ms since the epoch."""
    found = None if isinstance(published, str) else published.idle
    return None if found is None or now - found.now > OLD_IDLE_MS else found


def idle_lines(found: StepFigures | None, now: int) -> list[str]:
    """As `idle_of`, for people."""
    return (
        [] if found is None else [printable(f"next      {note} (said {ago(now - found.now)})") for note in found.notes]
    )


def mode_lines(pipeline: Pipeline, found: StepFigures | str | None, record: RolloutRecord | None) -> list[str]:
    """Whether autopilot must be restarted, because it has read the mode before somebody wrote another one into the file.

    Args:
        pipeline: with a rollout.
        found: what autopilot says now; None, or a text: it says nothing.
        record: the newest one. In a manual rollout, autopilot always only advises.
    """
    is_manual = record is not None and record.state not in ENDED and record.strategy == "manual"
    if (
        found is None
        or isinstance(found, str)
        or is_manual
        or pipeline.rollout is None
        or pipeline.rollout.mode != "act"
    ):
        return []
    if not any(note.startswith(_ADVICE) for note in found.notes):
        return []
    place = pipeline.at("rollout", "mode")
    return [
        f"note      {place} is act, but autopilot only advised at its newest evaluation: restart `millstream autopilot`"
    ]


def figure_lines(found: StepFigures | str, record: RolloutRecord, now: int) -> list[str]:
    """When the step was evaluated, what autopilot said, and how much is still to come. `now`: ms since the epoch."""
    if isinstance(found, str):
        # A manual rollout needs no autopilot.
        return [] if record.state in ENDED or record.strategy == "manual" else [printable(f"evaluated {found}")]
    lines = [evaluated_text(found, record, now)]
    before = "before the rollout ended: " if record.state in ENDED else ""
    lines += [f"found     {before}{note}" for note in found.notes]
    lines.append(
        f"so far    {_labels(found)}; {found.unmatured_share:.0%} of the events are not mature; {found.behind:,} records unread"
    )
    lines += _fallbacks(found)
    told = " ".join(found.notes)
    lines += [f"invalid   {reason}" for own in found.candidates for reason in own.invalid if reason not in told]
    return [printable(line) for line in lines]


def evaluated_text(found: StepFigures, record: RolloutRecord, now: int) -> str:
    """When, and as of when if autopilot has not read all."""
    written = now - (found.now if found.written is None else found.written)
    if record.state in ENDED:
        return f"evaluated {ago(now - found.now)}"
    if written > OLD_MS:
        return f"evaluated {span(written)} ago: autopilot doesn't run, or it can't evaluate (its log says why)"
    if written < now - found.now - OLD_MS:
        return (
            f"evaluated {ago(written)}, with what came until {span(now - found.now)} ago: autopilot runs, and catches up "
            f"({found.behind:,} records unread)"
        )
    return f"evaluated {ago(written)}"


def _labels(found: StepFigures) -> str:
    """Of each candidate, the labels of the side that has fewer: so many count in a comparison."""
    if len(found.candidates) == 1:
        return f"matured labels: {found.candidates[0].labels:,} (the version with fewer)"
    each = ", ".join(f"{own.candidate} {own.labels:,}" for own in found.candidates)
    return f"matured labels: {each} (the arm's or the baseline's, whichever are fewer)"


def _fallbacks(found: StepFigures) -> list[str]:
    """Where the baseline answers in the place of another version."""
    shares = [(own.name, found.value(own.name, "errors")) for own in found.variants[1:]]
    return [
        f"fallback  the baseline answers {share:.2%} of the events of {name} in its place: the version isn't loaded, or has an "
        "outage (the workers' logs say why; metrics millstream_rollout_loaded, millstream_rollout_fallback_events_total)"
        for name, share in shares
        if share
    ]


def verdict_table(found: StepFigures, needed: Mapping[str, float]) -> Table:
    """The verdict of each metric. `needed`: of `needed_benefits`."""
    table = Table(box=None, pad_edge=False)
    for heading in ("variant", "metric", "verdict", "benefit", "interval", "needed"):
        table.add_column(heading, overflow="fold")
    for own in found.candidates:
        counted = breaches(own.verdicts, own.invalid)
        for verdict in own.verdicts:
            is_dropped = verdict.outcome == "breach" and verdict not in counted
            outcome = "breach (doesn't count)" if is_dropped else outcome_word(verdict)
            shown = estimate_text(verdict), interval_text(verdict)
            limit = needed.get(_key(verdict))
            told = "-" if limit is None else limit_text(verdict.metric, limit)
            cells = (own.candidate, name_of(verdict), outcome, *shown, told)
            table.add_row(*(Text(printable(cell)) for cell in cells))
    return table


def needed_benefits(pipeline: Pipeline) -> dict[str, float]:
    """Metric -> the benefit that its lower bound must exceed; for a metric in a segment with `@` behind its name."""
    found: dict[str, float] = {}
    for rule in metric_rules(pipeline):
        found[rule.name] = rule.threshold
        if rule.segment_margin is not None:
            found[f"{rule.name}@"] = rule.in_segments().threshold
    if (rollout := pipeline.rollout) is not None:
        found[LATENCY] = 1 - rollout.metrics.latency.at_most
    return found


def figures_as_json(found: StepFigures | str, needed: Mapping[str, float]) -> dict[str, Any]:
    """The evaluation, for programs. A bound that is not known is null."""
    if isinstance(found, str):
        return {"problem": found}
    return {
        "at": found.now,
        "epoch": found.epoch,
        "notes": list(found.notes),
        "unmatured_share": found.unmatured_share,
        "behind": found.behind,
        "candidates": [
            {
                "variant": own.candidate,
                "labels": own.labels,
                "invalid": list(own.invalid),
                "metrics": [_as_json(verdict, needed) for verdict in own.verdicts],
            }
            for own in found.candidates
        ],
    }


def _as_json(verdict: Verdict, needed: Mapping[str, float]) -> dict[str, Any]:
    bounds = {"benefit": verdict.estimate, "lower": verdict.lower, "upper": verdict.upper}
    limit = needed.get(_key(verdict))
    return {
        "metric": verdict.metric,
        "segment": verdict.segment,
        "outcome": outcome_word(verdict),
        **{name: value if value is not None and math.isfinite(value) else None for name, value in bounds.items()},
        "needed": None if limit is None else f"> {limit:g}",
    }


def _key(verdict: Verdict) -> str:
    return verdict.metric if verdict.segment is None else f"{verdict.metric}@"
