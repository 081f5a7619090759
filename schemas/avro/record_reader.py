"""Reads single records of one writer schema with fastavro. It reads the wanted parts and skips the others."""

from typing import Any

import fastavro

from millstream.schemas.avro.each import RecordReader
from millstream.schemas.avro.map_entries import with_entries, written_with_entries
from millstream.schemas.avro.same_bytes import SameBytes
from millstream.schemas.avro.sources import Source
from millstream.schemas.avro.types import default_of, kind_of, map_values, record_tree, title
from millstream.schemas.errors import BadSchemaError
from millstream.schemas.store import AvroType, Schema

_EVENT = (
    "Event"  # the name of the top record on both sides: teams choose it freely, and the schema ID identifies the record
)


def record_reader(writer: Schema, reader: Schema, sources: list[Source]) -> RecordReader:
    """Return the reader of single records."""
    tree = record_tree(writer)
    whole = _parsed(SameBytes(writer.definition).type_of(tree), writer)
    narrowed, projected = _parsed(_narrowed(tree, writer, sources), writer), _projected(reader, sources)
    about = f"a record of {title(writer)} can't be read with {title(reader)}"
    return RecordReader(narrowed, whole, projected, sources, about)


def _parsed(definition: AvroType, of: Schema) -> Any:
    """Parse for fastavro. Raises BadSchemaError: a union of an array and a map whose keys are wanted is no valid schema."""
    try:
        return fastavro.parse_schema(definition)
    except Exception as error:  # fastavro raises many types for malformed input
        raise BadSchemaError(f"{title(of)} can't be read record by record: {error}: change it") from error


def _narrowed(tree: dict[str, Any], writer: Schema, sources: list[Source]) -> AvroType:
    """The writer schema, with cheaper types of the same encoding for the skipped fields."""
    wanted = {source.writer_name: source.field.type for source in sources}
    same, apart = SameBytes(writer.definition), _Apart("w")
    fields = []
    for entry in tree["fields"]:
        name, written = entry["name"], entry["type"]
        is_wanted = name in wanted
        read = apart.type_of(written_with_entries(written, wanted[name])) if is_wanted else same.type_of(written)
        fields.append({"name": name, "type": read})
    return {"type": "record", "name": _EVENT, "fields": fields}


def _projected(reader: Schema, sources: list[Source]) -> Any:
    """The reader schema with the wanted fields that the writer has. Others are skipped, or get their default."""
    apart = _Apart("r")
    there = [source for source in sources if source.writer_name is not None]
    fields = [
        {
            "name": source.field.name,
            "type": apart.type_of(with_entries(source.field.type)),
            "aliases": [] if source.writer_name == source.field.name else [source.writer_name],
        }
        for source in there
    ]
    projected = _parsed({"type": "record", "name": _EVENT, "fields": fields}, reader)
    try:
        for field, source in zip(projected["fields"], there, strict=True):
            _fill_in_defaults(field["type"], source.field.type)
    except (TypeError, ValueError, AttributeError) as error:
        raise BadSchemaError(
            f"{title(reader)}: a nested field's default is no value of its type: {error}: correct it"
        ) from error
    return projected


def _fill_in_defaults(as_parsed: Any, tree: AvroType) -> None:
    """Add the defaults of nested fields as Python values. fastavro gives defaults as in the JSON; bytes, for example, as text."""
    if isinstance(as_parsed, list):
        for branch, of_tree in zip(as_parsed, tree, strict=True):
            _fill_in_defaults(branch, of_tree)
    elif (values := map_values(tree)) is not None:
        [_, value] = as_parsed["items"]["fields"]
        _fill_in_defaults(value["type"], values)
    elif kind_of(tree) == "record":
        for entry, of_tree in zip(as_parsed["fields"], tree["fields"], strict=True):
            if "default" in of_tree:
                entry["default"] = default_of(of_tree)
            _fill_in_defaults(entry["type"], of_tree["type"])
    elif kind_of(tree) == "array":
        _fill_in_defaults(as_parsed["items"], tree["items"])


class _Apart:
    """Defines named types anew wherever they occur, each in a namespace of its own, and without the defaults of fields.

    The occurrences of a type may want different parts of it, and fastavro can't resolve a name on one side against a union
    that defines it on the other. fastavro compares the names of types without namespaces.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._count = 0

    def type_of(self, tree: AvroType) -> AvroType:
        """Return the same type with names of its own."""
        match kind_of(tree):
            case "union":
                return [self.type_of(branch) for branch in tree]
            case "array" | "map":
                inner = "items" if "items" in tree else "values"
                return {"type": tree["type"], inner: self.type_of(tree[inner])}
            case "record":
                return self._named(tree) | {"fields": [self._field(entry) for entry in tree["fields"]]}
            case "enum" | "fixed":
                return self._named(tree) | {key: tree[key] for key in ("symbols", "default", "size") if key in tree}
        return tree

    def _named(self, tree: dict[str, Any]) -> dict[str, Any]:
        self._count += 1
        name = f"{self._prefix}{self._count}.{_unqualified(tree['name'])}"
        return {
            "type": tree["type"],
            "name": name,
            "aliases": [_unqualified(alias) for alias in tree.get("aliases", ())],
        }

    def _field(self, entry: dict[str, Any]) -> dict[str, Any]:
        return {"name": entry["name"], "type": self.type_of(entry["type"]), "aliases": entry.get("aliases", [])}


def _unqualified(name: Any) -> Any:
    return name.rpartition(".")[2] if isinstance(name, str) else name
