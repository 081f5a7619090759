"""Reads single records of one writer schema with fastavro. It reads the wanted fields and skips the others."""

from typing import Any

import fastavro

from millstream.schemas.avro.each import RecordReader
from millstream.schemas.avro.same_bytes import SameBytes
from millstream.schemas.avro.sources import Source
from millstream.schemas.avro.types import default_of, record_tree, title
from millstream.schemas.errors import BadSchemaError
from millstream.schemas.store import AvroType, Schema


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


def _projected(reader: Schema, parsed_writer: Any, sources: list[Source]) -> Any:
    """The reader schema with the wanted fields that the writer has. Others are skipped, or get their default."""
    names = {source.field.name: source.writer_name for source in sources if source.writer_name}
    # In the writer's order, so that reader and writer define each type in the same place: fastavro can't resolve a writer's
    # reference to a type against a reader's union that defines the type.
    places = {field["name"]: place for place, field in enumerate(parsed_writer["fields"])}
    entries = [entry for entry in record_tree(reader)["fields"] if entry["name"] in names]
    entries.sort(key=lambda entry: places[names[entry["name"]]])
    seen: set[str] = set()
    fields = [{**entry, "type": _named_once(entry["type"], seen)} for entry in entries]
    # The top record gets the writer's name: teams choose it freely, and the schema ID identifies the record.
    projected = _parsed({"type": "record", "name": parsed_writer["name"], "fields": fields}, reader)
    try:
        _fill_in_defaults(projected, {"type": "record", "fields": entries})
    except (TypeError, ValueError, AttributeError) as error:
        raise BadSchemaError(
            f"{title(reader)}: a nested field's default is no value of its type: {error}: correct it"
        ) from error
    return projected


def _fill_in_defaults(as_parsed: Any, tree: AvroType) -> None:
    """Turn defaults into Python values. fastavro returns those of nested fields as in the JSON; bytes, for example, as text."""
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
    """Replace the repetitions of named types by their names, as Avro requires."""
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
