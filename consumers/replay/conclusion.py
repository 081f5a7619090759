"""Says what a replay shows: figures in a table, what is missing, and the verdict in words."""

from __future__ import annotations

import json
from dataclasses import asdict
from shlex import quote
from typing import TYPE_CHECKING, Any

from rich.padding import Padding
from rich.text import Text

from millstream.consumers.comparison.partials import Partial
from millstream.consumers.comparison.results import result
from millstream.consumers.comparison.show import (
    COLUMNS,
    INDENT,
    figures_table,
    finite,
    number,
    psi_reading,
    scale_note,
    time_text,
)
from millstream.consumers.comparison.verdict import Outcome, Verdict, verdict
from millstream.pipeline.comparison_sections import EXPECTED_LABELS
from millstream.pipeline.printable import printable
from millstream.schemas.comparisons import Pair, Variant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from millstream.consumers.replay.evaluated import Evaluated
    from millstream.consumers.replay.routing_check import RoutingCheck
    from millstream.consumers.replay.run import Compared
    from millstream.inference.evaluation import Summary
    from millstream.pipeline.pipeline import Pipeline

PREDICTED, REPLAYED = "predicted", "replayed"
_FURTHER = {"classification": ("log_loss", "accuracy"), "multiclass": ("log_loss",), "regression": ()}
"""Other differences that are shown with their intervals, by `comparison.task`. The verdict does not weigh them."""


def row_of(pipeline: Pipeline, compared: Compared, summary: Summary, start: int, end: int) -> dict[str, Any]:
    """The figures of some events, as those of a window of the comparison job (schema evaluation-v2)."""
    about = compared.about
    pair = Pair(Variant(about.model, _one_version(compared), PREDICTED), Variant(about.model, about.version, REPLAYED))
    whole = Partial(summary, final=True)
    return result(start, end, pair, whole, pipeline=pipeline.name, task=pipeline.comparison.task)


def _one_version(compared: Compared) -> int:
    """The version that made the predictions; 0: there were several."""
    models = compared.predicted_by
    return int(models[0].rpartition(" ")[2]) if len(models) == 1 else 0


def whole_row(pipeline: Pipeline, compared: Compared) -> dict[str, Any]:
    """The figures of all events."""
    return row_of(pipeline, compared, compared.evaluated.whole, compared.about.start, compared.about.end)


def outcome_of(pipeline: Pipeline, compared: Compared) -> Outcome:
    """The verdict's outcome."""
    return verdict([whole_row(pipeline, compared)], pipeline.comparison.task).outcome


def name_of(compared: Compared) -> str:
    """How messages call the replayed version."""
    return f"version {compared.about.version}"


def lines(pipeline: Pipeline, compared: Compared) -> Iterator[RenderableType]:
    """All that a person needs to know; the last line is the verdict."""
    row, about, found = whole_row(pipeline, compared), compared.about, compared.evaluated
    task = pipeline.comparison.task
    yield Text(f"{time_text(about.start)} to {time_text(about.end)} UTC  {printable(about.model)} {name_of(compared)}")
    for line in _counts(compared, row):
        yield Padding(Text(line), INDENT, expand=False)
    for reason, count in sorted(compared.progress.rejected.items()):
        example = printable(compared.progress.examples.get(reason, ""))
        yield Padding(Text(f"{count:,} without an answer ({reason}), such as {example}"), INDENT, expand=False)
    if found.answered > found.missing:
        if row["paired"]:
            yield Padding(figures_table(row, COLUMNS[task], latency=False), INDENT, expand=False)
        for figure in _FURTHER[task]:
            if difference := verdict([row], task, figure).figures():
                yield Padding(Text(f"difference of {difference}"), INDENT, expand=False)
        yield from _by_model(pipeline, compared)
        if note := scale_note(pipeline, row):
            yield Padding(Text(note), INDENT, expand=False)
    if compared.routing is not None:
        for line in routing_lines(compared.routing):
            yield Padding(Text(printable(line)), INDENT, expand=False)
    yield Text(sentence(pipeline, compared, verdict([row], task), row))


def _counts(compared: Compared, row: dict[str, Any]) -> Iterator[str]:
    found, progress = compared.evaluated, compared.progress
    yield (
        f"events {progress.answered + progress.rejected.total():,}, answered {progress.answered:,}, predicted "
        f"{found.answered - found.missing:,}, labelled {row['labelled']:,}, paired {row['paired']:,}"
    )
    if found.repeated:
        yield f"{found.repeated:,} events came more than once; the first one counts"
    if found.answered > found.missing:
        yield f"agreement {number(row['agreement'])}, PSI {number(row['psi'])}{psi_reading(row['psi'])}"
        yield (
            f"difference of scores: median {number(row['difference_p50'])}, p95 {number(row['difference_p95'])}; "
            f"rank correlation {number(row['rank_correlation'])}"
        )


def _by_model(pipeline: Pipeline, compared: Compared) -> Iterator[RenderableType]:
    """The agreement with each of the versions that made predictions, if there are several."""
    summaries = compared.evaluated.models
    for place, summary in sorted(summaries.items()) if len(summaries) > 1 else ():
        row = row_of(pipeline, compared, summary, compared.about.start, compared.about.end)
        figures = verdict([row], pipeline.comparison.task).figures()
        line = f"predicted by {printable(compared.models[place])}: {row['events']:,} events, agreement {number(row['agreement'])}"
        yield Padding(Text(f"{line}, {figures}" if figures else line), INDENT, expand=False)


def routing_lines(routing: RoutingCheck) -> Iterator[str]:
    """What the check of the routing found."""
    if routing.checked:
        same = "each has" if not routing.mismatches else f"{routing.mismatches:,} DON'T HAVE"
        part = f", of one in {routing.every} events" if routing.every > 1 else ""
        yield f"routing: {routing.checked:,} predictions checked{part}: {same} the variant that routing gives its key"
    if routing.while_loading:
        yield (
            f"routing: {routing.while_loading:,} of them are of workers that were loading a version: the baseline had its "
            "events, and none of them counts in comparisons"
        )
    yield from routing.examples
    if routing.problem:
        yield f"routing: {routing.without_record.total():,} predictions not checked: {routing.problem}"
    else:
        for name, count in sorted(routing.without_record.items()):
            yield f"routing: {count:,} predictions not checked: the control topic has no record of rollout {name} (any more)"
    for name, count in sorted(routing.without_field.items()):
        yield (
            f"routing: {count:,} predictions not checked: they lack what overrides name ({name}). Predictions have "
            f"only the fields of `output.include`"
        )


def sentence(pipeline: Pipeline, compared: Compared, said: Verdict, row: dict[str, Any]) -> str:
    """The verdict, or what is missing for one and what to do."""
    name = name_of(compared)
    if missing := _missing_answers(pipeline, compared):
        return f"{name}: not decided: {missing}"
    if said.difference is None and (missing := _missing_labels(pipeline, compared, row)):
        return f"{name}: not decided: {missing}"
    return said.words(name)


def _missing_answers(pipeline: Pipeline, compared: Compared) -> str:
    """Why there is nothing to judge, and what to do; empty if there is."""
    found, file = compared.evaluated, quote(str(pipeline.named))
    if not found.answered:
        return f"it answered no event. `millstream predict {file}` shows what becomes of an event"
    if found.answered == found.missing:
        return (
            f"none of its {found.answered:,} events has a prediction in {pipeline.output.topic} in this range of time. If "
            f"workers lagged, give --late a longer time than the lag was"
        )
    if pipeline.labels is None:
        where = f"Write `labels:` into {pipeline.path.name} (`millstream docs comparison`)"
        return f"only labels can tell which model is right. {where}"
    return ""


def _missing_labels(pipeline: Pipeline, compared: Compared, row: dict[str, Any]) -> str:
    """What is missing of the labels, and what to do; empty if only more are needed."""
    labels, task = pipeline.labels, pipeline.comparison.task
    assert labels is not None
    if not row["labelled"]:
        said = no_label(pipeline, f"{row['events']:,} compared events", compared.evaluated)
        return f"{said}. Records count from `labels.early` before `--from` until `labels.wait` after `--to`, by their timestamps"
    if not row["paired"]:
        return (
            f"{row['labelled']:,} events have a label, but no score of both models. "
            f"`millstream check {quote(str(pipeline.named))}` says which output is compared"
        )
    if task == "classification" and row["positives"] in {0, row["paired"]}:
        which = "false" if row["positives"] == 0 else "true"
        return f"the labels of all {row['paired']:,} paired events are {which}. The AUC needs both: choose a longer range of time"
    return ""


def no_label(pipeline: Pipeline, events: str, found: Evaluated) -> str:
    """Says that no label is of these events, and which labels count. `events`: how many there are, in words."""
    labels = pipeline.labels
    assert labels is not None
    return (
        f"none of the {events} has a label. A label counts if its `{labels.event_id}` is an event's ID and its "
        f"`{labels.value}` is {EXPECTED_LABELS[pipeline.comparison.task]}; {found.labels:,} labels were read, and "
        f"{found.bad_labels:,} records that are none"
    )


def _routing(routing: RoutingCheck) -> dict[str, Any]:
    counted = {name: dict(getattr(routing, name)) for name in ("without_record", "without_field")}
    return {
        "checked": routing.checked,
        "mismatches": routing.mismatches,
        "while_loading": routing.while_loading,
        "examples": routing.examples,
        "problem": routing.problem,
        **counted,
    }


def as_json(pipeline: Pipeline, compared: Compared) -> str:
    """The result as a JSON object. A figure that is no finite number is null."""
    row, found, progress = whole_row(pipeline, compared), compared.evaluated, compared.progress
    said = verdict([row], pipeline.comparison.task)
    plain = {
        "model": compared.about.model,
        "version": compared.about.version,
        "from": compared.about.start,
        "to": compared.about.end,
        "output": compared.about.output,
        "events": progress.answered + progress.rejected.total(),
        "answered": progress.answered,
        "rejected": dict(progress.rejected),
        "filtered": progress.left_out,
        "without_prediction": found.missing,
        "repeated": found.repeated,
        "predicted_by": compared.predicted_by,
        "verdict": asdict(said),
        "routing": None if compared.routing is None else _routing(compared.routing),
        "segments": {
            compared.segments[place]: row_of(pipeline, compared, summary, compared.about.start, compared.about.end)
            for place, summary in found.segments.items()
        },
        "words": sentence(pipeline, compared, said, row),
        "whole": row,
        "windows": [
            row_of(pipeline, compared, summary, start, start + found.width) for start, summary in found.windows.items()
        ],
    }
    return json.dumps(finite(plain))
