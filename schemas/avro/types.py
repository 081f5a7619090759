"""Avro types as trees: with references expanded and without logical types; and the column type of each type.

A type is a primitive's name or a dict (a record's `fields` are dicts of name and type), a union is a list. The column of a union
of several texts, numbers and booleans is `mixed`: it has the text of each value. A map of which some
keys are wanted is a record of these keys, which also has the type of the map's values (see `map_values`).
"""

from dataclasses import dataclass
from typing import Any

import fastavro

from millstream.schemas.avro.limits import parsed_within_limits
from millstream.schemas.column import column_of
from millstream.schemas.dtypes import Dtype, ListOf, RecordOf
from millstream.schemas.errors import BadFieldError, BadSchemaError
from millstream.schemas.store import AvroType, Schema

_DTYPES: dict[str, Dtype] = {
    "boolean": "boolean",
    "int": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    "string": "string",
    "bytes": "binary",
    "fixed": "binary",
    "enum": "string",
    "scalar": "string",
    "number": "float64",
    "mixed": "mixed",
}
_IN_MIXED = {"boolean", "int", "long", "float", "double", "string", "enum"}
_TIMESTAMPS = [f"timestamp-{unit}" for unit in ("millis", "micros", "nanos")]
_TIME_TYPES = {"date", "time-millis", "time-micros", *_TIMESTAMPS, *(f"local-{name}" for name in _TIMESTAMPS)}
NO_DEFAULT = object()
_LOGICAL_TYPE = "logical type"  # key of a type in `logical_tree`; no schema has this attribute
MAP_VALUES = "values of the map"  # key of a record that stands for a map; no schema has this attribute


@dataclass(frozen=True, slots=True)
class Field:
    """A top-level field of events of which something is wanted."""

    name: str
    type: AvroType  # a tree, with only the wanted parts
    dtype: Dtype
    default: Any  # a Python value; NO_DEFAULT: the schema has none
    aliases: tuple[str, ...]  # other names of the field in writer schemas


def kind_of(tree: AvroType) -> str:
    """Name of a type: "long", "record", ..., "union"."""
    if isinstance(tree, list):
        return "union"
    return str(tree["type"]) if isinstance(tree, dict) else str(tree)


def nullable(tree: AvroType) -> tuple[AvroType, bool]:
    """Split a union with null into the rest and True: one other type, or the union of the others. Any other type comes back
    with False.
    """
    if not isinstance(tree, list) or "null" not in tree:
        return tree, False
    others = [branch for branch in tree if branch != "null"]
    return (others[0] if len(others) == 1 else others), True


def fixed_size(tree: AvroType) -> int | None:
    """The number of bytes of a type's values; None if it varies, or if not all bytes are valid."""
    kind = kind_of(tree)
    if kind == "fixed":
        return int(tree["size"])
    if kind == "record":
        sizes = [fixed_size(entry["type"]) for entry in tree["fields"]]
        return None if None in sizes else sum(size for size in sizes if size is not None)
    return {"null": 0, "float": 4, "double": 8}.get(kind)


def parsed(schema: Schema) -> Any:
    """Return the schema parsed for fastavro, without logical types: a timestamp stays an integer.

    Raises BadSchemaError where it is no valid schema, or larger than `limits` allows.
    """
    parsed_within_limits(title(schema), schema.definition)
    return fastavro.parse_schema(_plain(schema.definition))


def record_tree(schema: Schema) -> dict[str, Any]:
    """Return the schema, which must be a record, as a tree; raise BadSchemaError if not, or if it contains itself."""
    tree = _inlined(parsed(schema), {}, (), title(schema))
    if kind_of(tree) != "record":
        raise BadSchemaError(
            f"{title(schema)}: expected a record at the top, found {kind_of(tree)}: wrap it in a record"
        )
    assert isinstance(tree, dict)
    return tree


def logical_tree(schema: Schema) -> dict[str, Any]:
    """Like `record_tree`, but with the types of times, see `time_type`."""
    return record_tree(Schema(schema.id, schema.name, _with_logical_types(schema.definition)))


def time_type(tree: AvroType) -> str:
    """The logical type of a time, of a type in `logical_tree`: its numbers have a unit. Empty for any other type.

    Avro says that unknown logical types are ignored, and those that don't fit the type, such as a string's.
    """
    name = str(tree.get(_LOGICAL_TYPE)) if isinstance(tree, dict) and kind_of(tree) in ("int", "long") else ""
    return name if name in _TIME_TYPES else ""


def title(schema: Schema) -> str:
    """How messages name a schema."""
    return f"schema {schema.id} '{schema.name}'" if schema.name else f"schema {schema.id}"


def dtype_of(tree: AvroType) -> Dtype:
    """Return the column type of a type, which depends on nothing else. Raises BadFieldError if there is none."""
    core, _ = nullable(tree)
    kind = kind_of(core)
    if kind == "array":
        return ListOf(dtype_of(core["items"]))
    if kind == "record":
        return RecordOf(tuple((field["name"], dtype_of(field["type"])) for field in core["fields"]))
    if kind == "union" and core and all(kind_of(branch) in _IN_MIXED for branch in core):
        return "mixed"
    if kind not in _DTYPES:
        raise BadFieldError(f"no column can hold the Avro type {kind}")
    return _DTYPES[kind]


def map_values(tree: AvroType) -> AvroType | None:
    """The type of a map's values, if this is the record of a map's wanted keys; else None."""
    return tree.get(MAP_VALUES) if isinstance(tree, dict) else None


def field_of(entry: dict[str, Any], of: str) -> Field:
    """A field that is wanted. `of`: the title of its schema.

    Raises BadFieldError if its type can't be a column, or if its default or its aliases are wrong.
    """
    place = f"field '{entry['name']}' of {of}"
    default, aliases = _checked_default(place, entry), tuple(entry.get("aliases", ()))
    if not all(isinstance(alias, str) for alias in aliases):
        raise BadFieldError(f"{place}: expected names as its aliases, found {list(aliases)!r:.60}: correct it")
    return Field(entry["name"], entry["type"], dtype_of(entry["type"]), default, aliases)


def check_defaults_within(tree: AvroType, place: str) -> None:
    """Raise BadFieldError if a field of a record in this type has a default that doesn't fit the field's type."""
    core, _ = nullable(tree)
    if kind_of(core) == "array":
        check_defaults_within(core["items"], place)
    if kind_of(core) == "record":
        for entry in core["fields"]:
            inside = f"field '{entry['name']}' within {place}"
            _checked_default(inside, entry)
            check_defaults_within(entry["type"], inside)


def _checked_default(place: str, field: dict[str, Any]) -> Any:
    try:
        default = default_of(field)
        column_of([] if default is NO_DEFAULT else [default], dtype_of(field["type"]))
    except (TypeError, ValueError, OverflowError, AttributeError) as error:
        raise BadFieldError(f"{place}: the default {field['default']!r} is no value of its type: correct it") from error
    return default


def default_of(field: dict[str, Any]) -> Any:
    """Return a record field's default as a Python value, or NO_DEFAULT."""
    return _value(field["type"], field["default"]) if "default" in field else NO_DEFAULT


def _value(tree: AvroType, default: Any) -> Any:
    """Turn a default in the schema's JSON into a Python value. In JSON, bytes are text of U+0000 to U+00FF."""
    core, is_nullable = nullable(tree)
    if default is None and is_nullable:
        return None
    kind = kind_of(core)
    if default is None and kind != "null":  # a column has nulls whatever its type
        raise TypeError("null is no value of it")
    if kind in ("bytes", "fixed"):
        return default.encode("latin-1")
    if kind in ("float", "double"):
        return float(default)
    if kind == "array":
        return [_value(core["items"], item) for item in default]
    if kind == "record":
        return {
            field["name"]: _value(field["type"], default.get(field["name"], field.get("default")))
            for field in core["fields"]
        }
    return default


def _plain(definition: AvroType) -> AvroType:
    """Copy a definition without logical types. A field's default is data and stays as it is."""
    if isinstance(definition, list):
        return [_plain(branch) for branch in definition]
    if not isinstance(definition, dict):
        return definition
    dropped = ("logicalType", "precision", "scale")
    return {
        key: value if key == "default" else _plain(value) for key, value in definition.items() if key not in dropped
    }


def _with_logical_types(definition: AvroType) -> AvroType:
    """Copy a definition, with logical types under a key that fastavro doesn't know."""
    if isinstance(definition, list):
        return [_with_logical_types(branch) for branch in definition]
    if not isinstance(definition, dict):
        return definition
    return {
        _LOGICAL_TYPE if key == "logicalType" else key: value if key == "default" else _with_logical_types(value)
        for key, value in definition.items()
    }


def _inlined(node: AvroType, named: dict[str, AvroType], open_names: tuple[str, ...], place: str) -> AvroType:
    if isinstance(node, list):
        return [_inlined(branch, named, open_names, place) for branch in node]
    if isinstance(node, str):
        if node in open_names:
            raise BadSchemaError(
                f"{place}: the type {node} contains itself: records of unlimited depth aren't supported"
            )
        return named.get(node, node)
    kind = node["type"]
    if kind in ("array", "map"):
        inner = "items" if kind == "array" else "values"
        return {"type": kind, inner: _inlined(node[inner], named, open_names, place)}
    if kind in ("record", "error"):
        inside = (*open_names, node["name"])
        fields = [{**field, "type": _inlined(field["type"], named, inside, place)} for field in node["fields"]]
        return named.setdefault(node["name"], {**node, "type": "record", "fields": fields})
    # {"type": "int"}, with or without attributes
    if kind in ("enum", "fixed"):
        return named.setdefault(node["name"], node)
    return node if time_type(node) else _inlined(kind, named, open_names, place)
