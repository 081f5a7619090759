"""Types without bytes (null, empty records), of which a record of a few bytes could have any number."""

from typing import Any

from schemas.avro_bounds import fixed_size
from schemas.avro_types import kind_of, parsed, record_tree, title
from schemas.errors import BadSchemaError
from schemas.store import AvroType, Schema

_MOST_EMPTY = 100  # in a schema, the null of a union not counted


def parsed_bounded(schema: Schema) -> Any:
    """Return a record schema that anybody may have registered, as fastavro reads with it.

    Raises BadSchemaError for one with which a short record takes much time or memory: it contains itself, is beyond the limits of
    `avro_limits`, or has many types without bytes.
    """
    refuse_many_empty(record_tree(schema), schema)
    return parsed(schema)


def refuse_many_empty(tree: AvroType, writer: Schema) -> None:
    """Raise BadSchemaError for a record's tree with many types without bytes, or with arrays of them."""
    if _empty_types(tree, writer) > _MOST_EMPTY:
        raise BadSchemaError(
            f"{title(writer)}: expected at most {_MOST_EMPTY} fields without bytes (null, empty records), found more: "
            "leave them out"
        )


def _empty_types(tree: AvroType, writer: Schema) -> int:
    """How many types within a type have no bytes: each takes time to read, and a record of a few bytes could have any number.

    Raises BadSchemaError for arrays of them, where a count of a few bytes stands for any number of items.
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
