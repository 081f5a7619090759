"""The last line about a shadow: the verdict, or what is missing for one and what to do next."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Any

from millstream.pipeline.comparison_sections import EXPECTED_LABELS
from millstream.schemas.units import written_duration
from millstream.schemas.wording import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.consumers.comparison.verdict import Verdict
    from millstream.pipeline.comparison_sections import Labels
    from millstream.pipeline.pipeline import Pipeline


def conclusion(pipeline: Pipeline, name: str, rows: Sequence[dict[str, Any]], verdict: Verdict) -> str:
    """One sentence, or several, about the shadow of this name.

    Args:
        pipeline: the pipeline.
        name: how to call the shadow.
        rows: the results of its windows.
        verdict: the verdict on it.
    """
    if pipeline.labels is None:
        where = f"Write `labels:` into {pipeline.path.name} (`millstream docs comparison`)"
        return f"{name}: not decided: only labels can tell which model is right. {where}"
    missing = "" if verdict.difference is not None else _missing(pipeline, pipeline.labels, rows)
    said = f"{name}: not decided yet: {missing}" if missing else verdict.words(name)
    late = _late(pipeline.labels, rows)
    return f"{said}. {late[0].upper()}{late[1:]}" if late and late not in said else said


def _missing(pipeline: Pipeline, labels: Labels, rows: Sequence[dict[str, Any]]) -> str:
    """What is missing, and what to do; empty if only more labels are."""
    events, errors, labelled, paired = (
        sum(row[figure] or 0 for row in rows) for figure in ("events", "errors", "labelled", "paired")
    )
    file = quote(str(pipeline.named))
    if not events:
        return f"no event was compared so far. `millstream tail {file} --comparisons` shows whether workers run this shadow"
    if errors == events:
        return f"it failed on all {events:,} events. `millstream tail {file} --comparisons --from-beginning` shows its errors"
    if not labelled and (late := _late(labels, rows)):
        return f"none of the {events:,} compared events has a label that counts: {late}"
    if not labelled:
        task = pipeline.comparison.task
        return (
            f"none of the {events:,} compared events has a label so far. A label counts if its `{labels.event_id}` is an "
            f"event's ID and its `{labels.value}` is {EXPECTED_LABELS[task]}. `millstream tail {file} --topic {labels.topic} "
            f"--from-beginning` shows labels, and the job's log says which ones it leaves out{_final(labels, rows)}"
        )
    if not paired:
        what = "no class of both models" if pipeline.comparison.task == "multiclass" else "no score of both models"
        return (
            f"{labelled:,} events have a label, but {what}. `millstream check {file}` says which output is compared, and how "
            f"to compare another one"
        )
    return _missing_for_auc(pipeline, rows) if pipeline.comparison.task == "classification" else ""


def _final(labels: Labels, rows: Sequence[dict[str, Any]]) -> str:
    """Says how many windows take no labels any more, and what to do; empty if none is final."""
    windows = {row["window_start"] for row in rows}
    if not (final := {row["window_start"] for row in rows if row["final"]}):
        return ""
    return (
        f". {len(final):,} of {counted(len(windows), 'window')} {'is' if len(final) == 1 else 'are'} final: labels that come for "
        f"their events now don't count. If labels usually come so late, write a longer `labels.wait`, now "
        f"{written_duration(labels.wait)}, for the windows to come. `millstream replay` also takes later labels, until "
        "`labels.wait` after its `--to`. Once a window is deleted, only the job counts its labels, as unknown_labels in its log "
        "and its metrics"
    )


def _late(labels: Labels, rows: Sequence[dict[str, Any]]) -> str:
    """Says how many labels came too late, and what to do; empty if none did."""
    late = sum(row["late_labels"] or 0 for row in rows)
    came = "1 label came after its window" if late == 1 else f"{late:,} labels came after their windows"
    if not late:
        return ""
    advice = f"If that is usual, write a longer `labels.wait`, now {written_duration(labels.wait)}"
    return f"{came} had closed, not counting windows that are deleted. {advice}"


def _missing_for_auc(pipeline: Pipeline, rows: Sequence[dict[str, Any]]) -> str:
    paired, positives = (sum(row[figure] or 0 for row in rows) for figure in ("paired", "positives"))
    if positives in {0, paired}:
        which, other = ("false", "true") if positives == 0 else ("true", "false")
        return f"the labels of all {paired:,} paired events are {which}. The AUC needs some that are {other}, too: wait for them"
    if not any(_has_both(row) for row in rows):
        return (
            f"{paired:,} paired events so far, but no window has 2 labels that are true and 2 that are false. Write a longer "
            f"`comparison.window`, now {written_duration(pipeline.comparison.window)}, and start the job again"
        )
    return ""


def _has_both(row: dict[str, Any]) -> bool:
    positives, paired = row["positives"] or 0, row["paired"] or 0
    return bool(positives >= 2 and paired - positives >= 2)
