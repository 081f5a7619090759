"""Parses an untrusted record schema for fastavro, within limits."""

from typing import Any

from millstream.schemas.avro.types import fixed_size, kind_of, parsed, record_tree, title
from millstream.schemas.errors import BadSchemaError
from millstream.schemas.store import AvroType, Schema

_MAX_EMPTY_TYPES = 100  # types without bytes (null, empty records) in a schema; the null of a union doesn't count


def parsed_bounded(schema: Schema) -> Any:
    """Return an untrusted record schema, parsed for fastavro.

    Raises BadSchemaError for a schema that lets a short record take much time or memory: it contains itself, exceeds the limits
    of `limits`, or has many types without bytes.
    """
    refuse_many_empty(record_tree(schema), schema)
    return parsed(schema)


def refuse_many_empty(tree: AvroType, writer: Schema) -> None:
    """Raise BadSchemaError if a record's tree has many types without bytes, or arrays of them."""
    if _empty_types(tree, writer) > _MAX_EMPTY_TYPES:
        raise BadSchemaError(
            f"{title(writer)}: expected at most {_MAX_EMPTY_TYPES} fields without bytes (null, empty records), found more: "
            "leave them out"
        )


def _empty_types(tree: AvroType, writer: Schema) -> int:
    """How many types within a type have no bytes. Each takes time to read, and a short record can have any number of them.

    Raises BadSchemaError for arrays of them: a count of a few bytes could claim any number of items.
    """
    match kind_of(tree):
        case "union":
            inner = tree
        case "record":
            inner = [entry["type"] for entry in tree["fields"]]
        case "map":
            inner = [tree["values"]]
        case "array":
            inner = [tree["items"]]
            if fixed_size(tree["items"]) == 0:
                raise BadSchemaError(
                    f"{title(writer)}: arrays of items without bytes (null, empty records) aren't supported"
                )
        case _:
            return int(fixed_size(tree) == 0)
    return int(inner == []) + sum(_empty_types(one, writer) for one in inner if tree is not inner or one != "null")
