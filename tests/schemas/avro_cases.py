"""Avro schemas, events and damage for the tests of the Avro decoder."""

import math
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

import fastavro
from hypothesis import strategies as st

from schemas.avro import AvroDecoder
from schemas.avro_plan import block_reader, resolve
from schemas.avro_types import wanted_fields
from schemas.errors import SchemaUnavailable, UnknownSchema
from schemas.store import AvroType, Schema
from schemas.wire import frame

WRITER_ID, READER_ID = 7, 8


class Store:
    """Schemas given by hand."""

    def __init__(self, *schemas: Schema) -> None:
        self.schemas = {schema.id: schema for schema in schemas}
        self.down = False

    def by_id(self, schema_id: int) -> Schema:
        if self.down:
            raise SchemaUnavailable("down")
        if schema_id not in self.schemas:
            raise UnknownSchema(f"no {schema_id}")
        return self.schemas[schema_id]

    def by_name(self, name: str) -> Schema:
        raise NotImplementedError

    def register(self, name: str, definition: AvroType) -> int:
        raise NotImplementedError


def record(*fields: Mapping[str, Any] | tuple[str, AvroType], name: str = "Event") -> dict[str, Any]:
    entries = [{"name": field[0], "type": field[1]} if isinstance(field, tuple) else dict(field) for field in fields]
    return {"type": "record", "name": name, "fields": entries}


def written(schema: Schema, events: Sequence[Mapping[str, Any]]) -> list[bytes]:
    parsed = fastavro.parse_schema(schema.definition)
    values = []
    for event in events:
        out = BytesIO()
        out.write(frame(schema.id))
        fastavro.schemaless_writer(out, parsed, event)
        values.append(out.getvalue())
    return values


def decoder(writer: AvroType, reader: AvroType = None, fields: Sequence[str] | None = None) -> AvroDecoder:
    reader = reader or writer
    store = Store(Schema(WRITER_ID, "writer", writer), Schema(READER_ID, "reader", reader))
    names = fields if fields is not None else [field["name"] for field in reader["fields"]]
    return AvroDecoder(store, Schema(READER_ID, "reader", reader), names)


def goes_by_blocks(writer: AvroType, reader: AvroType = None, fields: Sequence[str] | None = None) -> bool:
    """Whether records of this schema are read by blocks."""
    schema = Schema(READER_ID, "reader", reader or writer)
    names = fields if fields is not None else [field["name"] for field in schema.definition["fields"]]
    of_writer = Schema(WRITER_ID, "writer", writer)
    return block_reader(of_writer, resolve(of_writer, schema, wanted_fields(schema, names))) is not None


# Schemas and data

SCALARS = ("boolean", "int", "long", "float", "double", "string", "bytes", "fixed", "enum")
LIMITS = {"int": 2**31, "long": 2**63}
SYMBOLS = ["A", "B", "C"]


class Names:
    """Gives each named type of a schema a name of its own."""

    def __init__(self) -> None:
        self.count = 0

    def next(self) -> str:
        self.count += 1
        return f"N{self.count}"


def scalar(kind: str, names: Names) -> AvroType:
    if kind == "fixed":
        return {"type": "fixed", "name": names.next(), "size": 3}
    return {"type": "enum", "name": names.next(), "symbols": SYMBOLS} if kind == "enum" else kind


@st.composite
def types(draw: st.DrawFn, names: Names, depth: int = 2) -> AvroType:
    kind = draw(st.sampled_from((*SCALARS, "nullable", "nullable", "array", "record") if depth else SCALARS))
    if kind == "nullable":
        core = draw(types(names, depth - 1).filter(lambda core: not isinstance(core, list)))
        return draw(st.sampled_from([["null", core], [core, "null"]]))
    if kind == "array":
        return {"type": "array", "items": draw(types(names, depth - 1))}
    if kind == "record":
        inner = draw(st.lists(types(names, depth - 1), min_size=1, max_size=3))
        return record(*[(f"r{index}", one) for index, one in enumerate(inner)], name=names.next())
    return scalar(kind, names)


def data(of: AvroType) -> st.SearchStrategy[Any]:
    if isinstance(of, list):
        return st.one_of(*map(data, of))
    kind = of["type"] if isinstance(of, dict) else of
    match kind:
        case "record":
            return st.fixed_dictionaries({field["name"]: data(field["type"]) for field in of["fields"]})
        case "array":
            return st.lists(data(of["items"]), max_size=4)
        case "int" | "long":
            return st.integers(-LIMITS[kind], LIMITS[kind] - 1) | st.integers(-3, 70)
    return {
        "null": st.none(),
        "boolean": st.booleans(),
        "float": st.floats(width=32),
        "double": st.floats(),
        "string": st.text(max_size=80),
        "bytes": st.binary(max_size=80),
        "fixed": st.binary(min_size=3, max_size=3),
        "enum": st.sampled_from(SYMBOLS),
    }[kind]


@st.composite
def schemas(draw: st.DrawFn) -> dict[str, Any]:
    names = Names()
    inner = draw(st.lists(types(names), min_size=1, max_size=6))
    return record(*[(f"f{index}", one) for index, one in enumerate(inner)])


@st.composite
def schemas_with_data(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    schema = draw(schemas())
    return schema, draw(st.lists(data(schema), min_size=1, max_size=5))


def plain(value: Any) -> Any:
    """Make NaN equal to itself, for comparing."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list) else value
