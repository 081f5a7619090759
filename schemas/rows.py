"""Converts JSON lines and CSV cells to record values and back, for the command line.

It is not made for speed: it checks every value on its own, so that an error names its field.
"""

import base64
import json
import math
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from functools import lru_cache
from io import BytesIO
from typing import Any
from uuid import UUID

import fastavro
import msgspec

from millstream.schemas.avro.each import malformation
from millstream.schemas.avro.empty import parsed_bounded
from millstream.schemas.avro.types import parsed
from millstream.schemas.json_floats import json_float
from millstream.schemas.row_values import RowError, RowReader
from millstream.schemas.store import AvroType, Schema
from millstream.schemas.wire import HEAD_BYTES, frame, schema_id_of

__all__ = ["RowError", "encode_row", "encode_json_row", "parse_cells", "decode_row", "bytes_to_text"]


def encode_row(definition: AvroType, schema_id: int, row: Mapping[str, Any]) -> bytes:
    """The row as Avro in the wire format. Defaults of the schema fill fields that the row lacks. Raises RowError.

    Values have JSON types. Times are integers in the schema's unit, or ISO 8601 text; bytes are text, or
    `{"base64": "..."}`.
    """
    schema, reader = _compiled(json.dumps(definition))
    out = BytesIO()
    out.write(frame(schema_id))
    fastavro.schemaless_writer(out, schema, reader.row(row))
    return out.getvalue()


def encode_json_row(definition: AvroType, row: Mapping[str, Any]) -> bytes:
    """The row as a JSON object, with checks and defaults as in `encode_row`. Times become integers. Raises RowError."""
    _, reader = _compiled(json.dumps(definition))
    ready = {name: _to_json(value, name) for name, value in reader.row(row).items()}
    return msgspec.json.encode(ready)


def parse_cells(definition: AvroType, cells: Mapping[str, str | None]) -> dict[str, Any]:
    """The row in the text cells of a CSV line, for `encode_row` or `encode_json_row`.

    An empty cell is null where the schema allows that, else the field's default where there is one. Arrays, maps and
    records are JSON text. A cell that doesn't parse stays text, for the encoder to refuse with the field's name.
    """
    _, reader = _compiled(json.dumps(definition))
    return reader.parse_cells(cells)


def decode_row(value: bytes, definition: AvroType) -> dict[str, Any]:
    """The record in the wire format `value`, written with the schema `definition`, in a form that JSON can show.

    Times are ISO 8601 text, bytes readable UTF-8 or `{"base64": "..."}`, NaN and infinities text. Raises RowError.
    """
    try:
        schema_id_of(value)
        _check_bounded(json.dumps(definition))
        try:
            row = _decode(value[HEAD_BYTES:], definition)
        except OverflowError:  # a time that datetime can't hold: show the number
            row = _decode(value[HEAD_BYTES:], parsed(Schema(0, "", definition)))
    # fastavro raises exceptions of any class if the bytes don't follow the schema.
    except Exception as fault:
        raise RowError(
            f"the value is no record of schema {_name(definition)} in the wire format: {malformation(fault)}. "
            "Check that the schema is the one that the value's schema id names."
        ) from fault
    return {name: _to_text(item) for name, item in row.items()}


@lru_cache(maxsize=16)
def _check_bounded(definition: str) -> None:
    parsed_bounded(Schema(0, "", json.loads(definition)))


@lru_cache(maxsize=16)
def _compiled(definition: str) -> tuple[AvroType, RowReader]:
    named: dict[str, Any] = {}
    schema = fastavro.parse_schema(json.loads(definition), named_schemas=named)
    return schema, RowReader(schema, named)


def _decode(body: bytes, definition: AvroType) -> dict[str, Any]:
    stream = BytesIO(body)
    row: Any = fastavro.schemaless_reader(stream, fastavro.parse_schema(definition), None)
    if left := len(body) - stream.tell():
        raise ValueError(f"{left} bytes too many")
    if not isinstance(row, dict):
        raise TypeError("no record")
    return row


def _name(definition: AvroType) -> str:
    return str(definition.get("name", "without a name")) if isinstance(definition, dict) else str(definition)


def _to_json(value: Any, path: str) -> Any:
    """Convert a value from RowReader to its form in a JSON topic."""
    match value:
        case dict():
            return {key: _to_json(item, f"{path}.{key}") for key, item in value.items()}
        case list():
            return [_to_json(item, f"{path}[{index}]") for index, item in enumerate(value)]
        case (_, item):  # a union's branch by name
            return _to_json(item, path)
        case bytes():
            return value.decode("latin-1")  # Avro's JSON encoding of bytes
        case Decimal():
            return str(value)
        case float() if not math.isfinite(value):
            raise RowError(
                f"field {path!r}: expected a finite number, found {value}: JSON has no such. Write Avro instead."
            )
    return value


def _to_text(value: Any) -> Any:
    """Convert a value from fastavro to a form that JSON can show."""
    match value:
        case dict():
            return {key: _to_text(item) for key, item in value.items()}
        case list():
            return [_to_text(item) for item in value]
        case bytes():
            text: str | dict[str, str] = bytes_to_text(value)
        case datetime() | date() | time():
            text = value.isoformat().replace("+00:00", "Z")
        case Decimal() | UUID():
            text = str(value)
        case float():
            return json_float(value)
        case _:
            return value
    return text


def bytes_to_text(value: bytes) -> str | dict[str, str]:
    """The bytes as text; `{"base64": "..."}` if they are not readable text."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = "\0"
    return text if text.isprintable() else {"base64": base64.b64encode(value).decode()}
