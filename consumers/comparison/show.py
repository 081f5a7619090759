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

from millstream.consumers.comparison.names import app_name
from millstream.consumers.comparison.verdict import Verdict, verdict
from millstream.pipeline.printable import printable
from millstream.schemas.avro.each import malformation
from millstream.schemas.avro.empty import parsed_bounded
from millstream.schemas.avro.types import parsed
from millstream.schemas.errors import BadSchemaError, SchemaError, SchemaUnavailable
from millstream.schemas.records import EVALUATION
from millstream.schemas.store import Schema
from millstream.schemas.wire import HEAD_BYTES, schema_id_of
from millstream.topics.group import is_empty
from millstream.topics.records import RecordReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from millstream.pipeline.comparison_sections import Shadow
    from millstream.pipeline.pipeline import Pipeline
    from millstream.schemas.store import SchemaStore

_SCHEMA: Final = parsed(Schema(EVALUATION.reserved_id, EVALUATION.name, EVALUATION.definition))
_MAX_READ_RECORDS = 500  # records of one read
_MAX_RESULTS: Final = 10_000  # results that are shown, one per window and pair: the newest
_MAX_NAME_LENGTH: Final = 300  # characters of a name
_IDLE_TIMEOUT = 2.0  # after this many seconds without a record, all records have been read
_CLASSIFICATION = ("auc", "log_loss", "brier", "calibration_error")
_REGRESSION = ("rmse", "mae")
_SAME_PSI, _SHIFTED_PSI = 0.1, 0.25
_INDENT: Final = (0, 0, 0, 2)  # indent of the lines under a heading: top, right, bottom, left


def read_results(pipeline: Pipeline, store: SchemaStore) -> list[dict[str, Any]]:
    """The newest result of each window and pair, ordered by window, at most the 10,000 newest. Skips records that aren't results.

    Raises:
        BrokerUnreachableError, TopicError: the topic can't be read.
        SchemaUnavailable: the schema registry doesn't respond.
    """
    newest: dict[bytes | None, dict[str, Any]] = {}
    with RecordReader(pipeline.client_config(), [pipeline.comparison.evaluations], from_beginning=True) as reader:
        while records := reader.read(_MAX_READ_RECORDS, _IDLE_TIMEOUT):
            for record in records:
                try:
                    newest[record.key] = decode_result(record.value or b"", store)
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
        _time(row["window_start"])
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


def judged(pipeline: Pipeline, rows: Sequence[dict[str, Any]]) -> list[Judged]:
    """The verdict on each shadow of the pipeline file."""
    found = []
    for shadow in pipeline.shadows:
        mine = [row for row in rows if _is_of(pipeline, shadow, row)]
        model, version = pipeline.shadow_model(shadow)
        name = f"version {version}" if model == pipeline.model.name else f"{model} version {version}"
        found.append(Judged(name, mine, verdict(mine, pipeline.comparison.task)))
    return found


def _is_of(pipeline: Pipeline, shadow: Shadow, row: dict[str, Any]) -> bool:
    """Whether the result compares this shadow with the primary, both as the pipeline file names them."""
    ours, theirs = row["primary"], row["shadow"]
    return (
        ours["model"] == pipeline.model.name
        and pipeline.model.version in {None, ours["version"]}
        and (theirs["model"], theirs["version"]) == pipeline.shadow_model(shadow)
        and theirs["variant"] == shadow.name
    )


def results(pipeline: Pipeline, rows: Sequence[dict[str, Any]], shadows: Sequence[Judged]) -> Iterator[RenderableType]:
    """All results. Each has a line with the models' names, two lines about both models, and a table with a row per model.

    Then come what to do if the job doesn't run, and a line with the verdict on each shadow.
    """
    names = _REGRESSION if pipeline.comparison.task == "regression" else _CLASSIFICATION
    for row in rows:
        yield Text(_heading(row))
        for line in _both(row):
            yield Padding(Text(line), _INDENT, expand=False)
        yield Padding(_figures(row, names), _INDENT, expand=False)
    start = f"start it with `millstream compare {quote(str(pipeline.named))}`, and let it run"
    if not rows:
        yield Text(f"no results yet: the comparison job writes them ({start}) while workers answer events")
    elif is_empty(pipeline.client_config(), app_name(pipeline)):
        yield Text(f"the comparison job isn't running, so these results stay as they are: {start}")
    for each in shadows if rows else ():
        yield Text(_words(pipeline, each))


def _words(pipeline: Pipeline, each: Judged) -> str:
    if pipeline.labels is None:
        where = f"Write `labels:` into {pipeline.path.name} (`millstream docs comparison`)"
        return f"{printable(each.name)}: not decided: only labels can tell which model is right. {where}"
    return each.verdict.words(printable(each.name))


def as_json(each: Judged) -> str:
    """The shadow's verdict and results as a JSON object. A figure that is no finite number is null."""
    return json.dumps(_finite({"shadow": each.name, "verdict": asdict(each.verdict), "windows": each.rows}))


def _finite(value: Any) -> Any:
    match value:
        case dict():
            return {key: _finite(item) for key, item in value.items()}
        case list():
            return [_finite(item) for item in value]
        case float() if not math.isfinite(value):
            return None
    return value


def _heading(row: dict[str, Any]) -> str:
    models = (
        f"{row[side]['model'][:_MAX_NAME_LENGTH]} version {row[side]['version']}" for side in ("primary", "shadow")
    )
    state = "final" if row["final"] else "open"
    return f"{_time(row['window_start'])}  {state}  {printable(' and '.join(models))}"


def _both(row: dict[str, Any]) -> tuple[str, str]:
    counts = ", ".join(f"{name} {row[name]:,}" for name in ("events", "errors", "labelled"))
    return counts, f"agreement {_number(row['agreement'])}, PSI {_number(row['psi'])}{_reading(row['psi'])}"


def _reading(psi: float | None) -> str:
    """What the population stability index means by the common rule."""
    if psi is None or math.isnan(psi):
        return ""
    if psi < _SAME_PSI:
        return f" (< {_SAME_PSI}: same)"
    return (
        f" (> {_SHIFTED_PSI}: shifted)" if psi > _SHIFTED_PSI else f" ({_SAME_PSI} to {_SHIFTED_PSI}: shifted a little)"
    )


def _figures(row: dict[str, Any], names: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for name in (*names, "p95 ms"):
        table.add_column(name.replace("_", " "), justify="right")
    for side in ("primary", "shadow"):
        figures = (_number(row[side][name]) for name in names)
        table.add_row(side, *figures, _number(row[side]["latency_p95_ms"], 2))
    return table


def _time(milliseconds: int) -> str:
    """Raises ValueError, OverflowError or OSError: the number isn't a valid date."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _number(value: float | None, digits: int = 4) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
