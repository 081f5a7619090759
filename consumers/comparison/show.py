"""Prints the results so far: for a terminal, or as JSON."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from io import BytesIO
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

import fastavro
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from millstream.consumers.comparison.conclusion import conclusion
from millstream.consumers.comparison.names import app_name
from millstream.consumers.comparison.totals import FIGURES, Totals, totals
from millstream.consumers.comparison.verdict import Verdict, verdict
from millstream.consumers.observability.metrics import SHADOW_SKIPPED
from millstream.pipeline.printable import printable
from millstream.schemas.avro.each import malformation
from millstream.schemas.avro.empty import parsed_bounded
from millstream.schemas.avro.types import parsed
from millstream.schemas.errors import BadSchemaError, SchemaError, SchemaUnavailable
from millstream.schemas.records import EVALUATION
from millstream.schemas.store import Schema
from millstream.schemas.units import written_duration
from millstream.schemas.wire import HEAD_BYTES, schema_id_of
from millstream.topics.group import is_empty
from millstream.topics.since_reader import SinceReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import RenderableType

    from millstream.pipeline.comparison_sections import Shadow
    from millstream.pipeline.pipeline import Pipeline
    from millstream.schemas.store import SchemaStore

_SCHEMA: Final = parsed(Schema(EVALUATION.reserved_id, EVALUATION.name, EVALUATION.definition))
_MAX_RESULTS: Final = 10_000  # results that are read, one per window and pair: the newest
MAX_SHOWN: Final = 20  # results that are shown one by one: the newest
_MAX_NAME_LENGTH: Final = 300  # characters of a name
COLUMNS: Final[Mapping[str, Sequence[str]]] = {
    "classification": ("auc", "log_loss", "brier", "calibration_error"),
    "multiclass": ("accuracy", "log_loss"),
    "regression": ("rmse", "mae"),
}
_DEFAULT_SHADOW: Final = "shadow"  # the name of a shadow without a `name:`
_NO_LOG_LOSS: Final = (
    "log loss is not known: it needs the probability of each compared class for every event, and some answers lack it. "
    "`millstream check` says which outputs there are; name one with probabilities in `comparison.output`, and all of its classes "
    "in `comparison.classes`"
)
_SAME_PSI, _SHIFTED_PSI = 0.1, 0.25
_PROBABLE: Final = -0.1, 1.1  # a median from here to there may be one of probabilities: medians come from bins
INDENT: Final = (0, 0, 0, 2)  # indent of the lines under a heading: top, right, bottom, left


def read_results(pipeline: Pipeline, store: SchemaStore) -> list[dict[str, Any]]:
    """The newest result of each window and pair, ordered by window, at most the 10,000 newest. Skips records that aren't results.

    It reads what the topic has now, and ends also while the job writes on.

    Raises:
        BrokerUnreachableError, TopicError: the topic can't be read.
        SchemaUnavailable: the schema registry doesn't respond.
    """
    newest: dict[bytes | None, dict[str, Any]] = {}
    with SinceReader(pipeline.client_config(), {pipeline.comparison.evaluations: 0}) as reader:
        for fetched in reader.existing():
            for key, value in zip(fetched.keys, fetched.values, strict=True):
                try:
                    newest[key] = decode_result(value or b"", store)
                except SchemaUnavailable:
                    raise
                except SchemaError:  # somebody else's record
                    continue
            if len(newest) > 2 * _MAX_RESULTS:
                newest = dict(sorted(newest.items(), key=lambda entry: _order(entry[1]))[-_MAX_RESULTS:])
    return sorted(newest.values(), key=_order)[-_MAX_RESULTS:]


def _order(row: dict[str, Any]) -> tuple[int, str]:
    return row["window_start"], row["shadow"]["variant"]


def decode_result(value: bytes, store: SchemaStore) -> dict[str, Any]:
    """A result's record; times are ms since the epoch, and a time of the calendar. Raises SchemaError."""
    writer = parsed_bounded(store.by_id(schema_id_of(value)))
    try:
        row: Any = fastavro.schemaless_reader(BytesIO(value[HEAD_BYTES:]), writer, _SCHEMA)
        time_text(row["window_start"])
        time_text(row["updated_at"])
    # Bytes that aren't of the schema make fastavro raise whatever its reading code stumbles over.
    except Exception as fault:
        raise BadSchemaError(f"no result: {malformation(fault)}") from fault
    assert isinstance(row, dict)
    return row


@dataclass(frozen=True, slots=True)
class Judged:
    """A shadow of the pipeline file, with the results of its windows and what they say."""

    name: str  # as messages call it
    rows: list[dict[str, Any]]
    verdict: Verdict
    log_loss: Verdict | None  # the same for the log loss; None: there are no classes
    totals: Totals | None  # both models' figures over all windows; None: there are no classes


def _counted_once(rows: list[dict[str, Any]], window: float) -> list[dict[str, Any]]:
    """The results without those of another length than `window` (seconds) that overlap its windows.

    After a change of `comparison.window`, the events of the windows that are open then are in windows of both lengths.
    """
    length = round(window * 1000)
    is_ours = [row["window_end"] - row["window_start"] == length for row in rows]
    first = min((row["window_start"] for row, ours in zip(rows, is_ours, strict=True) if ours), default=math.inf)
    return [row for row, ours in zip(rows, is_ours, strict=True) if ours or row["window_end"] <= first]


def judged(pipeline: Pipeline, rows: Sequence[dict[str, Any]]) -> list[Judged]:
    """The verdict on each shadow of the pipeline file."""
    found = []
    task = pipeline.comparison.task
    for shadow in pipeline.shadows:
        mine = _counted_once([row for row in rows if _is_of(pipeline, shadow, row)], pipeline.comparison.window)
        of_classes = (verdict(mine, task, "log_loss"), totals(mine)) if task == "multiclass" else (None, None)
        found.append(Judged(_name(pipeline, shadow), mine, verdict(mine, task), *of_classes))
    return found


def _name(pipeline: Pipeline, shadow: Shadow) -> str:
    """The shadow's version, its model if that is not the primary's, and its own name if it has one."""
    model, version = pipeline.shadow_model(shadow)
    name = f"version {version}" if model == pipeline.model.name else f"{model} version {version}"
    return name if shadow.name == _DEFAULT_SHADOW else f"{name} ({shadow.name})"


def _is_of(pipeline: Pipeline, shadow: Shadow, row: dict[str, Any]) -> bool:
    """Whether the result compares this shadow with the primary, both as the pipeline file names them."""
    ours, theirs = row["primary"], row["shadow"]
    return (
        ours["model"] == pipeline.model.name
        and (not isinstance(pipeline.wanted_version, int) or pipeline.wanted_version == ours["version"])
        and (theirs["model"], theirs["version"]) == pipeline.shadow_model(shadow)
        and theirs["variant"] == shadow.name
    )


def results(pipeline: Pipeline, rows: Sequence[dict[str, Any]], shadows: Sequence[Judged]) -> Iterator[RenderableType]:
    """The newest results. Each has a line with its time, two lines about both models, and a table with a row per model.

    Then come what to do if the job doesn't run, the figures over all windows if there are classes, and the verdicts.
    """
    names = COLUMNS[pipeline.comparison.task]
    if len(rows) > MAX_SHOWN:
        yield Text(
            f"{len(rows) - MAX_SHOWN:,} older results aren't shown: `millstream compare {quote(str(pipeline.named))} --show "
            "--json` prints all"
        )
    for row in rows[-MAX_SHOWN:]:
        yield Text(_heading(row))
        for line in _both(row):
            yield Padding(Text(line), INDENT, expand=False)
        yield Padding(figures_table(row, names), INDENT, expand=False)
    start = f"start it with `millstream compare {quote(str(pipeline.named))}`, and let it run"
    is_stopped = is_empty(pipeline.client_config(), app_name(pipeline))
    if not rows:
        yield Text(f"no results yet: {_first_results(pipeline, start, is_stopped=is_stopped)}")
    elif is_stopped:
        yield Text(f"the comparison job isn't running, so these results stay as they are: {start}")
    if note := next(filter(None, (scale_note(pipeline, each.rows[-1]) for each in shadows if each.rows)), ""):
        yield Text(note)
    for each in shadows if rows else ():
        if each.totals is not None and each.totals.labels:
            yield from _all_windows(each, each.totals)
        yield Text(conclusion(pipeline, printable(each.name), each.rows, each.verdict))


def _first_results(pipeline: Pipeline, start: str, *, is_stopped: bool) -> str:
    """When the first results come. `start`: how to start the job."""
    skipped = (
        f"A busy worker's shadow leaves events out: the worker's log and its metric {SHADOW_SKIPPED.name} say how many"
    )
    if is_stopped:
        job = "A job that has just been started joins its group first, which may take a minute"
        return f"the comparison job writes them ({start}) while workers answer events. {job}. {skipped}"
    return (
        f"a comparison job that runs writes its first ones about {written_duration(pipeline.comparison.update_every)} "
        f"(`comparison.update_every`) after it has read the first comparisons, so workers must answer events. After its start, "
        f"this may take a minute. If no job runs, {start}. {skipped}"
    )


def _all_windows(each: Judged, whole: Totals) -> Iterator[RenderableType]:
    yield Text(f"all windows  labelled {whole.labelled:,}, paired {whole.labels:,}")
    table = _table(FIGURES)
    for name, figures in (("primary", whole.primary), (printable(each.name), whole.shadow)):
        table.add_row(Text(name), *(number(figures[figure]) for figure in FIGURES))
    yield Padding(table, INDENT, expand=False)
    if whole.primary["log_loss"] is None or whole.shadow["log_loss"] is None:
        yield Padding(Text(_NO_LOG_LOSS), INDENT, expand=False)
    else:
        for compared in (each.verdict, each.log_loss):
            if compared is not None and (difference := compared.figures()):
                of = "" if compared.labels == whole.labels else f", {compared.labels:,} paired events"
                yield Padding(Text(f"difference of {difference}{of}"), INDENT, expand=False)


def as_json(each: Judged) -> str:
    """The shadow's verdict and results as a JSON object. A figure that is no finite number is null."""
    return json.dumps(
        finite({"shadow": each.name, "verdict": asdict(each.verdict), **_of_classes(each), "windows": each.rows})
    )


def _of_classes(each: Judged) -> dict[str, Any]:
    if each.log_loss is None or each.totals is None:
        return {}
    return {"log_loss": asdict(each.log_loss), "totals": asdict(each.totals)}


def finite(value: Any) -> Any:
    """The value for JSON: null in place of numbers that are not finite."""
    match value:
        case dict():
            return {key: finite(item) for key, item in value.items()}
        case list():
            return [finite(item) for item in value]
        case float() if not math.isfinite(value):
            return None
    return value


def _heading(row: dict[str, Any]) -> str:
    models = (
        f"{row[side]['model'][:_MAX_NAME_LENGTH]} version {row[side]['version']}" for side in ("primary", "shadow")
    )
    state = "final" if row["final"] else "open"
    return f"{time_text(row['window_start'])} UTC  {state}  {printable(' and '.join(models))}"


def _both(row: dict[str, Any]) -> tuple[str, str]:
    counts = [f"{name} {row[name]:,}" for name in ("events", "errors", "labelled")]
    paired = "-" if row["paired"] is None else f"{row['paired']:,}"  # None: the result of an older job
    counts += [f"paired {paired}", *_labels_left_out(row)]
    return ", ".join(counts), f"agreement {number(row['agreement'])}, PSI {number(row['psi'])}{psi_reading(row['psi'])}"


def _labels_left_out(row: dict[str, Any]) -> Iterator[str]:
    """The labels of the window's events that don't count; nothing if all do."""
    names = {"repeated": row["repeated_labels"], "late": row["late_labels"]}
    if left_out := [f"{count:,} {name}" for name, count in names.items() if count]:
        yield f"labels left out: {' and '.join(left_out)}"


def psi_reading(psi: float | None) -> str:
    """What the population stability index means by the common rule."""
    if psi is None or math.isnan(psi):
        return ""
    if psi < _SAME_PSI:
        return f" (< {_SAME_PSI}: same)"
    return (
        f" (> {_SHIFTED_PSI}: shifted)" if psi > _SHIFTED_PSI else f" ({_SAME_PSI} to {_SHIFTED_PSI}: shifted a little)"
    )


def scale_note(pipeline: Pipeline, row: dict[str, Any]) -> str:
    """What to write if most scores can't be probabilities, which the default task compares; empty: they may be some.

    `row`: a result (schema evaluation-v2).
    """
    section = pipeline.comparison
    if {"task", "threshold"} & section.model_fields_set:
        return ""
    least, most = _PROBABLE
    for side in ("primary", "shadow"):
        median = row[side]["score_p50"]
        if median is not None and (median < least or median > most):
            name = printable(row[side]["variant"][:_MAX_NAME_LENGTH])
            return (
                f"warning: the median score of {name} is {number(median)}, but the task `classification` (the default) compares "
                f"probabilities, with the threshold {section.threshold}. If the models predict a number, write `comparison: "
                f"{{task: regression}}` into {pipeline.path.name}. If these are scores of another scale, write your "
                "application's threshold: `comparison: {threshold: NUMBER}`"
            )
    return ""


def figures_table(row: dict[str, Any], names: Sequence[str], *, latency: bool = True) -> Table:
    """A row for each model with these figures and its latency; `row`: a result (schema evaluation-v2)."""
    table = _table((*names, "p95 ms") if latency else names)
    for side in ("primary", "shadow"):
        figures = (number(row[side][name]) for name in names)
        table.add_row(
            Text(printable(row[side]["variant"][:_MAX_NAME_LENGTH])),
            *figures,
            *([number(row[side]["latency_p95_ms"], 2)] if latency else []),
        )
    return table


def _table(names: Sequence[str]) -> Table:
    """A table with a row for each model: primary, and the shadow's name. A long name is cut to the terminal's width."""
    table = Table(box=None, pad_edge=False)
    table.add_column("", no_wrap=True, overflow="ellipsis")
    for name in names:
        table.add_column(name.replace("_", " "), justify="right", min_width=6)
    return table


def time_text(milliseconds: int) -> str:
    """The time in UTC, to the second. Raises ValueError, OverflowError or OSError: the number isn't a valid date."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def number(value: float | None, digits: int = 4) -> str:
    """The figure; `-` if it is not known."""
    return "-" if value is None else f"{value:.{digits}f}"
