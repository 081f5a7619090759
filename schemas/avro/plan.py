"""How the records of one writer schema become the wanted columns: by blocks where that is exact, else one by one."""

from typing import Any

import fastavro

from millstream.schemas.avro.block import BlockReader, block_columns, container_header
from millstream.schemas.avro.bounds import walk_of
from millstream.schemas.avro.columns import Source
from millstream.schemas.avro.each import RecordReader
from millstream.schemas.avro.empty import refuse_many_empty
from millstream.schemas.avro.layout import Layouts, can_lay_out
from millstream.schemas.avro.same_bytes import SameBytes
from millstream.schemas.avro.types import (
    NO_DEFAULT,
    Field,
    default_of,
    kind_of,
    nullable,
    record_tree,
    title,
)
from millstream.schemas.errors import BadSchemaError, Unreadable
from millstream.schemas.store import AvroType, Schema

_PROMOTIONS = {
    ("int", "long"),
    ("int", "float"),
    ("int", "double"),
    ("long", "float"),
    ("long", "double"),
    ("float", "double"),
}

_SAME_BYTES = {"string": "bytes", "enum": "int"}


def resolve(writer: Schema, reader: Schema, fields: list[Field]) -> list[Source]:
    """Find each wanted field in the writer schema.

    Raises Unreadable (reason schema_incompatible) where a field has neither a value in these records nor a default, and
    BadSchemaError for a writer schema whose records can't be read at all.
    """
    tree = record_tree(writer)
    refuse_many_empty(tree, writer)
    types = {entry["name"]: entry["type"] for entry in tree["fields"]}
    return [_source(field, types, writer, reader) for field in fields]


def block_reader(writer: Schema, sources: list[Source]) -> BlockReader | None:
    """Return the reader by blocks; None where it wouldn't give exactly what Avro's schema resolution gives."""
    tree = record_tree(writer)
    steps = walk_of(tree)
    if steps is None or not all(
        _reads_as(source.writer_type, source.field.type) for source in sources if source.writer_name
    ):
        return None
    header = container_header(_block_fields(tree))
    columns = block_columns(sources)
    layouts = Layouts(tree, columns) if can_lay_out(tree, columns) else None
    return BlockReader(header, steps, columns, sources, layouts)


def record_reader(writer: Schema, reader: Schema, sources: list[Source]) -> RecordReader:
    """Return the reader of single records."""
    tree = record_tree(writer)
    whole = _parsed(SameBytes(writer.definition).type_of(tree), writer)
    as_written = _parsed(_narrowed(tree, writer, sources), writer)
    return RecordReader(as_written, whole, _projected(reader, as_written, sources), sources)


def _parsed(definition: AvroType, of: Schema) -> Any:
    """Parse for fastavro. Raises BadSchemaError: expanding a name can expose a bad default that fastavro did not check before."""
    try:
        return fastavro.parse_schema(definition)
    except Exception as error:  # fastavro raises many types for malformed input
        raise BadSchemaError(f"{title(of)} is no valid Avro schema: {error}: correct it") from error


def _narrowed(tree: dict[str, Any], writer: Schema, sources: list[Source]) -> AvroType:
    """The writer schema, with cheaper types of the same encoding for the skipped fields."""
    wanted = {source.writer_name for source in sources}
    same = SameBytes(writer.definition)
    fields = [
        entry if entry["name"] in wanted else {"name": entry["name"], "type": same.type_of(entry["type"])}
        for entry in tree["fields"]
    ]
    # Without a namespace, because names inside would inherit it.
    return _named_once({"type": "record", "name": same.prefix, "fields": fields}, set())


def _source(field: Field, types: dict[str, AvroType], writer: Schema, reader: Schema) -> Source:
    name = next((name for name in (field.name, *field.aliases) if name in types), None)
    if name is None and field.default is NO_DEFAULT:
        raise Unreadable(
            "schema_incompatible",
            f"{title(writer)}, which the record was written with, lacks the field '{field.name}' that "
            f"{title(reader)} wants: give it a default there, or write it",
        )
    return Source(field, name, types[name] if name else "null")


def _reads_as(written: AvroType, wanted: AvroType) -> bool:
    """Whether the block reader's column, converted, is what Avro's schema resolution gives."""
    (writer, _), (reader, _) = nullable(written), nullable(wanted)
    if (kind_of(writer), kind_of(reader)) in _PROMOTIONS:
        return True
    if kind_of(writer) == kind_of(reader) == "enum":
        return set(writer["symbols"]) <= set(reader["symbols"])
    return _shape(writer) == _shape(reader) and not _has_enum(writer)


def _shape(tree: AvroType) -> Any:
    """What two types must share for the same bytes to mean the same."""
    core, is_nullable = nullable(tree)
    kind = kind_of(core)
    if is_nullable:
        return ("nullable", _shape(core))
    match kind:
        case "array":
            return (kind, _shape(core["items"]))
        case "record":
            return (kind, tuple((entry["name"], _shape(entry["type"])) for entry in core["fields"]))
        case "fixed":
            return (kind, core["size"])
    return kind


def _has_enum(tree: AvroType) -> bool:
    core, _ = nullable(tree)
    if kind_of(core) == "record":
        return any(_has_enum(entry["type"]) for entry in core["fields"])
    return kind_of(core) == "enum" or (kind_of(core) == "array" and _has_enum(core["items"]))


def _block_type(tree: AvroType) -> AvroType:
    """A type with the same bytes that the block reader reads.

    It panics at nullable enums, so enums are read as the int that encodes them. It does not report which text is not UTF-8, so
    text is read as bytes.
    """
    if isinstance(tree, list):
        return [_block_type(branch) for branch in tree]
    if (kind := kind_of(tree)) in _SAME_BYTES:
        return _SAME_BYTES[kind]
    match kind:
        case "array":
            return {"type": "array", "items": _block_type(tree["items"])}
        case "record":
            return {"type": "record", "name": tree["name"], "fields": _block_fields(tree)}
        case "fixed":
            return {"type": "fixed", "name": tree["name"], "size": tree["size"]}
    return tree


def _block_fields(record: AvroType) -> list[dict[str, Any]]:
    # The block reader has no null type; nulls have no bytes.
    fields = [{"name": entry["name"], "type": _block_type(entry["type"])} for entry in record["fields"]]
    return [entry for entry in fields if entry["type"] != "null"]


def _projected(reader: Schema, parsed_writer: Any, sources: list[Source]) -> Any:
    """The reader schema with the fields that are wanted and written: the rest is skipped, or has its default."""
    names = {source.field.name: source.writer_name for source in sources if source.writer_name}
    # In the writer's order, so that reader and writer define each type in the same place: fastavro can't resolve a writer's
    # reference to a type against a reader's union that defines the type.
    places = {field["name"]: place for place, field in enumerate(parsed_writer["fields"])}
    entries = [entry for entry in record_tree(reader)["fields"] if entry["name"] in names]
    entries.sort(key=lambda entry: places[names[entry["name"]]])
    seen: set[str] = set()
    fields = [{**entry, "type": _named_once(entry["type"], seen)} for entry in entries]
    # The top record's name is the writer's: teams name it as they like, and the id in the record says which it is.
    projected = _parsed({"type": "record", "name": parsed_writer["name"], "fields": fields}, reader)
    try:
        _fill_in_defaults(projected, {"type": "record", "fields": entries})
    except (TypeError, ValueError, AttributeError) as error:
        raise BadSchemaError(
            f"{title(reader)}: a nested field's default is no value of its type: {error}: correct it"
        ) from error
    return projected


def _fill_in_defaults(as_parsed: Any, tree: AvroType) -> None:
    """Make defaults Python values: fastavro gives a nested field's as the schema's JSON has it, bytes as text for instance."""
    if isinstance(as_parsed, list):
        for branch, of_tree in zip(as_parsed, tree, strict=True):
            _fill_in_defaults(branch, of_tree)
    elif isinstance(as_parsed, dict) and "fields" in as_parsed:
        for entry, of_tree in zip(as_parsed["fields"], tree["fields"], strict=True):
            if "default" in entry:
                entry["default"] = default_of(of_tree)
            _fill_in_defaults(entry["type"], of_tree["type"])
    elif isinstance(as_parsed, dict):
        for inner in ("items", "values"):
            if inner in as_parsed:
                _fill_in_defaults(as_parsed[inner], tree[inner])


def _named_once(tree: AvroType, seen: set[str]) -> AvroType:
    """Put names in the place of types that were there before, as Avro wants it."""
    if isinstance(tree, list):
        return [_named_once(branch, seen) for branch in tree]
    if not isinstance(tree, dict):
        return tree
    if "name" in tree:
        if tree["name"] in seen:
            return tree["name"]
        seen.add(tree["name"])
    if "fields" in tree:
        fields = [{**entry, "type": _named_once(entry["type"], seen)} for entry in tree["fields"]]
        return {**tree, "fields": fields}
    inner = "items" if "items" in tree else "values"
    return {**tree, inner: _named_once(tree[inner], seen)} if inner in tree else tree
