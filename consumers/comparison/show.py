"""Prints the results so far for a terminal."""

from __future__ import annotations

from datetime import UTC, datetime
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

import fastavro
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from millstream.pipeline.printable import printable
from millstream.schemas.avro.each import malformation
from millstream.schemas.avro.empty import parsed_bounded
from millstream.schemas.avro.types import parsed
from millstream.schemas.errors import BadSchemaError, SchemaError, SchemaUnavailable
from millstream.schemas.records import EVALUATION
from millstream.schemas.store import Schema
from millstream.schemas.wire import HEAD_BYTES, schema_id_of
from millstream.topics.records import RecordReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from millstream.pipeline.pipeline import Pipeline
    from millstream.schemas.store import SchemaStore

_SCHEMA: Final = parsed(Schema(EVALUATION.reserved_id, EVALUATION.name, EVALUATION.definition))
_MAX_READ_RECORDS = 500  # records of one read
_MAX_RESULTS: Final = 10_000  # results that are shown, one per window and pair: the newest
_MAX_NAME_LENGTH: Final = 300  # characters of a name
_IDLE_TIMEOUT = 2.0  # after this many seconds without a record, all records have been read
_CLASSIFICATION = ("auc", "log_loss", "brier", "calibration_error")
_REGRESSION = ("rmse", "mae")
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


def results(pipeline: Pipeline, store: SchemaStore) -> Iterator[RenderableType]:
    """All results. Each has a line with the models' names, a line about both models, and a table with a row per model."""
    names = _REGRESSION if pipeline.comparison.task == "regression" else _CLASSIFICATION
    rows = read_results(pipeline, store)
    for row in rows:
        yield Text(_heading(row))
        yield Padding(Text(_both(row)), _INDENT, expand=False)
        yield Padding(_figures(row, names), _INDENT, expand=False)
    if not rows:
        yield Text("no results yet")


def _heading(row: dict[str, Any]) -> str:
    models = (
        f"{row[side]['model'][:_MAX_NAME_LENGTH]} version {row[side]['version']}" for side in ("primary", "shadow")
    )
    state = "final" if row["final"] else "open"
    return f"{_time(row['window_start'])}  {state}  {printable(' and '.join(models))}"


def _both(row: dict[str, Any]) -> str:
    counts = ", ".join(f"{name} {row[name]:,}" for name in ("events", "errors", "labelled"))
    return f"{counts}, agreement {_number(row['agreement'])}, PSI {_number(row['psi'])}"


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
