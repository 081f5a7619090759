"""The results so far, as a table."""

from __future__ import annotations

from datetime import UTC, datetime
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

import fastavro
from rich.markup import escape
from rich.table import Table

from millstream.pipeline.printable import printable
from millstream.schemas.avro.empty import parsed_bounded
from millstream.schemas.avro.types import parsed
from millstream.schemas.errors import BadSchemaError, SchemaError, SchemaUnavailable
from millstream.schemas.records import EVALUATION
from millstream.schemas.store import Schema
from millstream.schemas.wire import HEAD_BYTES, schema_id_of
from millstream.topics.records import RecordReader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.pipeline.pipeline import Pipeline
    from millstream.schemas.store import SchemaStore

_SCHEMA: Final = parsed(Schema(EVALUATION.reserved_id, EVALUATION.name, EVALUATION.definition))
_MAX_READ_RECORDS = 500  # records of one read
_MAX_RESULTS: Final = 10_000  # windows and pairs that are kept: the newest
_MAX_NAME_LENGTH: Final = 300  # characters of a name
_IDLE_TIMEOUT = 2.0  # seconds without a record, after which all was read
_CLASSIFICATION = ("auc", "log_loss", "brier", "calibration_error")
_REGRESSION = ("rmse", "mae")


def read_results(pipeline: Pipeline, store: SchemaStore) -> list[dict[str, Any]]:
    """The newest result of each window and pair, by window; of the newest 10,000. What is no result is passed over.

    Raises:
        BrokerUnreachableError, TopicError: the topic can't be read.
        SchemaUnavailable: the schema registry does not answer.
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
        raise BadSchemaError(f"no result: {type(fault).__name__}: {fault}") from fault
    assert isinstance(row, dict)
    return row


def results_table(pipeline: Pipeline, store: SchemaStore) -> Table:
    """All results: one line a window and pair, of each figure primary's and shadow's."""
    names = _REGRESSION if pipeline.comparison.task == "regression" else _CLASSIFICATION
    table = Table(box=None, pad_edge=False)
    for heading in ("window", "", "primary", "shadow", "events", "errors", "labelled", "agree", "psi"):
        table.add_column(heading, overflow="fold")
    for name in (*names, "p95 ms"):
        table.add_column(f"{name.replace('_', ' ')}: primary", justify="right")
        table.add_column("shadow", justify="right")
    for row in read_results(pipeline, store):
        table.add_row(*_cells(row, names))
    if not table.row_count:
        table.caption = "no results yet"
    return table


def _cells(row: dict[str, Any], names: Iterable[str]) -> list[str]:
    sides = row["primary"], row["shadow"]
    return [
        _time(row["window_start"]),
        "final" if row["final"] else "open",
        *(escape(printable(f"{side['model'][:_MAX_NAME_LENGTH]}:{side['version']}")) for side in sides),
        *(str(row[name]) for name in ("events", "errors", "labelled")),
        _number(row["agreement"]),
        _number(row["psi"]),
        *(_number(side[name]) for name in names for side in sides),
        *(_number(side["latency_p95_ms"], 2) for side in sides),
    ]


def _time(milliseconds: int) -> str:
    """Raises ValueError, OverflowError or OSError: it is no time of the calendar."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _number(value: float | None, digits: int = 4) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
