"""Schemas with which a short record would take the process's memory or its stack."""

from typing import Any

import pytest

from millstream.schemas.avro.empty import parsed_bounded
from millstream.schemas.errors import BadSchemaError
from millstream.schemas.records import (
    COMPARISON,
    DEAD_LETTER,
    EVALUATION,
    INCLUDING_PREDICTION,
    PREDICTION,
    ROLLOUT,
    OwnRecord,
)
from millstream.schemas.rows import RowError, decode_row
from millstream.schemas.store import Schema

NODE = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}


def record(field: Any, name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": "f", "type": field}]}


def nulls(count: int) -> dict[str, Any]:
    return {"type": "record", "name": "Nulls", "fields": [{"name": f"f{n}", "type": "null"} for n in range(count)]}


def of_each_other(levels: int) -> dict[str, Any]:
    """Ten values of the next level in each, and a null in the last: 10 ** levels of them in a record without a byte."""
    inner: Any = record("null", "L0")
    for level in range(1, levels):
        fields = [{"name": "f0", "type": inner}, *({"name": f"f{n}", "type": f"L{level - 1}"} for n in range(1, 10))]
        inner = {"type": "record", "name": f"L{level}", "fields": fields}
    return record(inner)


@pytest.mark.parametrize("own", [COMPARISON, DEAD_LETTER, EVALUATION, PREDICTION, INCLUDING_PREDICTION, ROLLOUT])
def test_own_schemas_are_taken(own: OwnRecord) -> None:
    parsed_bounded(Schema(own.reserved_id, own.name, own.definition))


@pytest.mark.parametrize(
    ("definition", "said"),
    [
        (NODE, "contains itself"),
        (record({"type": "array", "items": NODE}), "contains itself"),
        (record({"type": "array", "items": "null"}), "arrays of items without bytes"),
        (record({"type": "array", "items": record("null", "Empty")}), "arrays of items without bytes"),
        (
            record({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}),
            "arrays of items without bytes",
        ),
        (of_each_other(9), "at most 10,000 types"),
        (record({"type": "map", "values": nulls(101)}), "at most 100 fields without bytes"),
        ("long", "expected a record"),
    ],
)
def test_schema_that_claims_boundless_memory_or_depth_is_refused(definition: Any, said: str) -> None:
    with pytest.raises(BadSchemaError, match=said):
        parsed_bounded(Schema(7, "", definition))


@pytest.mark.parametrize(
    ("definition", "body"),
    [(NODE, b"\x02" * 1_000_000 + b"\0"), (record({"type": "array", "items": "null"}), b"\xfe" * 5 + b"\x0f\0")],
)
def test_record_of_such_a_schema_is_refused_before_it_is_read(definition: Any, body: bytes) -> None:
    with pytest.raises(RowError, match=r"in the wire format: schema 0: .* aren't supported"):
        decode_row(b"\0\0\0\0\x07" + body, definition)
