"""Avro schemas, events and damage for the tests of the Avro decoder."""

import json
import math
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

import fastavro
from hypothesis import strategies as st

from millstream.schemas.avro.decoder import AvroDecoder
from millstream.schemas.avro.program import program_of
from millstream.schemas.avro.sources import sources_of
from millstream.schemas.avro.wanted import wanted_columns
from millstream.schemas.errors import SchemaUnavailable, UnknownSchema
from millstream.schemas.store import AvroType, Schema
from millstream.schemas.wire import HEAD_BYTES, frame

WRITER_ID, READER_ID = 7, 8


class Store:
    """Schemas given by hand."""

    def __init__(self, *schemas: Schema) -> None:
        self.schemas = {schema.id: schema for schema in schemas}
        self.down = False
        self.asked: list[int] = []

    def by_id(self, schema_id: int) -> Schema:
        self.asked.append(schema_id)
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


def has_program(writer: AvroType, reader: AvroType = None, fields: Sequence[str] | None = None) -> bool:
    """Whether records of this schema become columns in C."""
    schema = Schema(READER_ID, "reader", reader or writer)
    names = fields if fields is not None else [field["name"] for field in schema.definition["fields"]]
    of_writer = Schema(WRITER_ID, "writer", writer)
    return program_of(of_writer, sources_of(of_writer, schema, wanted_columns(schema, names).fields)) is not None


# Schemas and data

SCALARS = ("boolean", "int", "long", "float", "double", "string", "bytes", "fixed", "enum")
LOGICAL: list[tuple[str, dict[str, Any]]] = [
    ("int", {"logicalType": "date"}),
    ("int", {"logicalType": "time-millis"}),
    ("long", {"logicalType": "time-micros"}),
    ("long", {"logicalType": "timestamp-millis"}),
    ("long", {"logicalType": "timestamp-micros"}),
    ("long", {"logicalType": "local-timestamp-millis"}),
    ("bytes", {"logicalType": "decimal", "precision": 9, "scale": 2}),
    ("fixed", {"logicalType": "decimal", "precision": 4, "scale": 2}),
    ("string", {"logicalType": "uuid"}),
    ("float", {"logicalType": "of-our-own"}),
]
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


def logical(of: tuple[str, dict[str, Any]], names: Names) -> AvroType:
    kind, what = of
    plainly = scalar(kind, names)
    return {**(plainly if isinstance(plainly, dict) else {"type": plainly}), **what}


@st.composite
def types(draw: st.DrawFn, names: Names, depth: int = 2) -> AvroType:
    kind = draw(st.sampled_from((*SCALARS, "logical", *(["nullable"] * 2 + ["array", "record"] if depth else []))))
    if kind == "nullable":
        core = draw(types(names, depth - 1).filter(lambda core: not isinstance(core, list)))
        return draw(st.sampled_from([["null", core], [core, "null"]]))
    if kind == "array":
        return {"type": "array", "items": draw(types(names, depth - 1))}
    if kind == "record":
        inner = draw(st.lists(types(names, depth - 1), min_size=1, max_size=3))
        return record(*[(f"r{index}", one) for index, one in enumerate(inner)], name=names.next())
    return logical(draw(st.sampled_from(LOGICAL)), names) if kind == "logical" else scalar(kind, names)


def data(of: AvroType) -> st.SearchStrategy[Any]:
    """Values of a type; of a logical one as they are on the wire."""
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


def json_cases() -> st.SearchStrategy[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Schemas with data that can be written as JSON: NaN and bytes can't."""
    without = ('"bytes"', '"fixed"', '"float"', '"double"')
    return schemas_with_data().filter(lambda case: not any(word in json.dumps(case[0]) for word in without))


# Evolution

PROMOTED = {"int": ["long", "float", "double"], "long": ["float", "double"], "float": ["double"]}
ADDED: list[dict[str, Any]] = [
    {"name": "added", "type": "double", "default": 1},
    {"name": "added_null", "type": ["null", "string"], "default": None},
    {"name": "added_bytes", "type": "bytes", "default": "\u00ff"},
    {"name": "added_list", "type": {"type": "array", "items": "int"}, "default": [1, 2]},
]


@st.composite
def evolved(draw: st.DrawFn, writer: dict[str, Any], *, top: bool = True) -> dict[str, Any]:
    """A reader's record for what the writer's writes: fields left out, moved, promoted, renamed, added; within them too."""
    fields = []
    for entry in writer["fields"]:
        field = dict(entry)
        match draw(st.sampled_from(["keep", "drop", "evolve", "evolve", "allow null", "rename"])):
            case "drop":
                continue
            case "evolve":
                field["type"] = draw(evolved_type(field["type"]))
            case "allow null" if not isinstance(field["type"], list):
                field["type"] = ["null", field["type"]]
            case "rename":
                field |= {"name": "new_" + field["name"], "aliases": [field["name"]]}
        fields.append(field)
    fewest = 1 if top or not fields else 0
    fields += draw(st.lists(st.sampled_from(ADDED), min_size=fewest, unique_by=lambda field: str(field["name"])))
    return record(*draw(st.permutations(fields)), name="Reader" if top else writer["name"])


@st.composite
def evolved_type(draw: st.DrawFn, of: AvroType) -> AvroType:
    """A type that reads this one's values: numbers promoted, records evolved, also in arrays and where null is allowed."""
    if isinstance(of, list):
        return [branch if branch == "null" else draw(evolved_type(branch)) for branch in of]
    kind = of["type"] if isinstance(of, dict) else of
    if kind == "array":
        return {"type": "array", "items": draw(evolved_type(of["items"]))}
    if kind == "record":
        return draw(evolved(of, top=False))
    return draw(st.sampled_from([of, *PROMOTED.get(kind, [])]))


@st.composite
def nested_evolution(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """A writer's schema of one field, a record or an array; and a reader's with that evolved."""
    within = draw(st.sampled_from(["", "", "null", "array"]))
    kinds = ["float", "double"] if within == "array" else ["int", "long", "float", "double", "string"]
    inner = draw(st.lists(st.sampled_from(kinds), min_size=2, max_size=3))
    core: AvroType = record(*[(f"r{index}", kind) for index, kind in enumerate(inner)], name="Inner")
    if within == "array" and draw(st.booleans()):
        core = draw(st.sampled_from(["int", "float"]))
    found: AvroType = draw(evolved_type(core))
    if isinstance(core, dict) and draw(st.booleans()):  # moved alone, which else is rare
        found = record(*draw(st.permutations(core["fields"])), name="Inner")
    return record(("x", _within(within, core))), record(("x", _within(within, found)), name="Reader")


def _within(kind: str, of: AvroType) -> AvroType:
    return {"type": "array", "items": of} if kind == "array" else ["null", of] if kind == "null" else of


def read_by_fastavro(writer: AvroType, reader: AvroType, values: Sequence[bytes]) -> list[dict[str, Any]]:
    """What fastavro alone makes of the values, without logical types."""
    definitions = [writer, {**reader, "name": writer["name"]}]
    as_written, wanted = (
        fastavro.parse_schema(json.loads(json.dumps(one), object_hook=_unlogical)) for one in definitions
    )
    bodies = [BytesIO(value[HEAD_BYTES:]) for value in values]
    return [_with_bytes(fastavro.schemaless_reader(body, as_written, wanted)) for body in bodies]


def _unlogical(node: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in node.items() if key not in {"logicalType", "precision", "scale"}}


def _with_bytes(value: Any) -> Any:
    """The default of `added_bytes` as bytes: fastavro gives defaults as the schema's JSON has them."""
    if isinstance(value, list):
        return [_with_bytes(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: b"\xff" if key == "added_bytes" else _with_bytes(inner) for key, inner in value.items()}


def plain(value: Any) -> Any:
    """Make NaN equal to itself, for comparing."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list) else value
