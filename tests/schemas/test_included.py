"""The event's fields in predictions: each with its type, nulls as nulls; readers of the older schema read on."""

from __future__ import annotations

import json
import math
from io import BytesIO
from typing import Any

import fastavro
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.schemas.column import column_of
from millstream.schemas.dtypes import Dtype, ListOf, RecordOf
from millstream.schemas.included import can_be_included
from millstream.schemas.predictions import JsonPredictionEncoder, PredictionEncoder
from millstream.schemas.records import INCLUDING_PREDICTION, PREDICTION, OwnRecord
from millstream.schemas.table import Table
from millstream.schemas.wire import HEAD_BYTES, frame
from tests.schemas.json_values import as_json
from tests.schemas.row_models import ONE

IDENTITY: dict[str, Any] = {"pipeline": "p", "model": "m", "version": 1, "variant": "primary"}
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)
SINGLE: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float32": st.floats(width=32).map(lambda value: math.nan if math.isnan(value) else value),
    "float64": st.floats().map(lambda value: math.nan if math.isnan(value) else value),
    "string": TEXTS,
}
BRANCHES = {
    "boolean": "boolean",
    "int32": "long",
    "int64": "long",
    "float32": "double",
    "float64": "double",
    "string": "string",
}


@st.composite
def events(draw: st.DrawFn) -> tuple[dict[str, Dtype], dict[str, list[Any]]]:
    """Fields with their types, and each one's values."""
    rows = draw(st.integers(1, 6))
    dtypes: dict[str, Dtype] = {}
    columns: dict[str, list[Any]] = {}
    for name in draw(st.lists(TEXTS, max_size=4, unique=True)):
        single = draw(st.sampled_from(sorted(SINGLE)))
        value = SINGLE[single] | st.none() if draw(st.booleans()) else SINGLE[single]
        if draw(st.booleans()):
            dtypes[name], value = ListOf(single), st.lists(value, max_size=4) | st.none()
        else:
            dtypes[name] = single
        columns[name] = draw(st.lists(value, min_size=rows, max_size=rows))
    columns[""] = [str(row) for row in range(rows)]  # a table has a column
    return dtypes | {"": "string"}, columns


def encoded(encoder: Any, dtypes: dict[str, Dtype], columns: dict[str, list[Any]]) -> list[bytes]:
    event = Table({name: column_of(columns[name], dtype) for name, dtype in dtypes.items()})
    rows = np.arange(len(event))
    return list(encoder.encode(list(map(str, rows)), rows, rows, rows, {"y": rows}, event, models=ONE))


def branch(value: Any, dtype: Dtype) -> Any:
    """The value as fastavro writes it in the branch of its type."""
    if value is None:
        return None
    if isinstance(dtype, ListOf):
        return "array", [branch(item, dtype.items) for item in value]
    return BRANCHES[str(dtype)], value


@given(events())
def test_avro_is_byte_for_byte_what_fastavro_writes(event: tuple[dict[str, Dtype], dict[str, list[Any]]]) -> None:
    dtypes, columns = event
    schema = fastavro.parse_schema(INCLUDING_PREDICTION.definition)
    for row, value in enumerate(encoded(PredictionEncoder(7, pipeline="p", variant="primary"), dtypes, columns)):
        out = BytesIO()
        times = dict.fromkeys(["event_time", "ingest_time", "prediction_time"], row)
        fields = {name: branch(columns[name][row], dtype) for name, dtype in dtypes.items()}
        datum = {**IDENTITY, "event_id": str(row), **times, "outputs": {"y": ("long", row)}, "event": fields}
        fastavro.schemaless_writer(out, schema, datum)
        assert value == frame(7) + out.getvalue()


@given(events())
def test_json_has_the_same_values(event: tuple[dict[str, Dtype], dict[str, list[Any]]]) -> None:
    dtypes, columns = event
    for row, value in enumerate(encoded(JsonPredictionEncoder(pipeline="p", variant="primary"), dtypes, columns)):
        prediction = json.loads(value)
        assert prediction["event"] == {name: as_json(columns[name][row]) for name in dtypes}
        assert prediction["outputs"] == {"y": row}


def read(value: bytes, written: OwnRecord, reader: OwnRecord) -> Any:
    body = BytesIO(value[HEAD_BYTES:])
    return fastavro.schemaless_reader(body, fastavro.parse_schema(written.definition), reader.definition)


def test_reader_with_the_older_schema_reads_predictions_that_include_fields() -> None:
    [value] = encoded(
        PredictionEncoder(7, pipeline="p", variant="primary"), {"amount": ListOf("float64")}, {"amount": [[1.5, None]]}
    )
    assert read(value, INCLUDING_PREDICTION, INCLUDING_PREDICTION)["event"] == {"amount": [1.5, None]}
    older = read(value, INCLUDING_PREDICTION, PREDICTION)
    assert list(older) == [field["name"] for field in PREDICTION.definition["fields"]]
    assert older["outputs"] == {"y": 0}


def test_reader_with_the_newer_schema_reads_predictions_that_include_none() -> None:
    zero = np.zeros(1, np.int64)
    [value] = PredictionEncoder(7, pipeline="p", variant="primary").encode(
        ["e"], zero, zero, zero, {"y": zero}, models=ONE
    )
    newer = read(value, PREDICTION, INCLUDING_PREDICTION)
    assert (newer["outputs"], newer["event"]) == ({"y": 0}, {})


@pytest.mark.parametrize("dtype", ["binary", ListOf("binary"), ListOf(ListOf("int64")), RecordOf((("a", "int64"),))])
def test_bytes_records_and_nested_lists_cannot_be_included(dtype: Dtype) -> None:
    assert not can_be_included(dtype)
