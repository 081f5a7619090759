"""The results so far, as a table."""

from __future__ import annotations

from datetime import UTC, datetime
from io import BytesIO
from typing import TYPE_CHECKING, Any

import fastavro
from rich.table import Table

from schemas.avro_types import parsed
from schemas.errors import SchemaError
from schemas.wire import HEAD_BYTES, schema_id_of
from topics.records import RecordReader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from schemas.store import SchemaStore
    from topics.pipeline import Pipeline

_MOST = 500  # records of one read
_QUIET = 2.0  # seconds without a record, after which all was read
_CLASSIFICATION = ("auc", "log_loss", "brier", "calibration_error")
_REGRESSION = ("rmse", "mae")


def read_results(pipeline: Pipeline, store: SchemaStore) -> list[dict[str, Any]]:
    """The newest result of each window and pair, by window.

    Raises:
        BrokerUnreachableError, TopicError: the topic can't be read.
    """
    newest: dict[bytes | None, dict[str, Any]] = {}
    with RecordReader(pipeline.client_config(), [pipeline.comparison.evaluations], from_beginning=True) as reader:
        while records := reader.read(_MOST, _QUIET):
            for record in records:
                try:
                    newest[record.key] = decode_result(record.value or b"", store)
                except SchemaError:  # somebody else's record
                    continue
    return sorted(newest.values(), key=lambda row: (row["window_start"], row["shadow"]["variant"]))


def decode_result(value: bytes, store: SchemaStore) -> dict[str, Any]:
    """A result's record; times are ms since the epoch. Raises SchemaError."""
    writer = parsed(store.by_id(schema_id_of(value)))
    row: Any = fastavro.schemaless_reader(BytesIO(value[HEAD_BYTES:]), writer, None)
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
        datetime.fromtimestamp(row["window_start"] / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S"),
        "final" if row["final"] else "open",
        *(f"{side['model']}:{side['version']}" for side in sides),
        *(str(row[name]) for name in ("events", "errors", "labelled")),
        _number(row["agreement"]),
        _number(row["psi"]),
        *(_number(side[name]) for name in names for side in sides),
        *(_number(side["latency_p95_ms"], 2) for side in sides),
    ]


def _number(value: float | None, digits: int = 4) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
