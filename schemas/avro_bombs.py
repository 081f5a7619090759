"""Refuses schemas with which a short record takes boundless memory or stack in fastavro, which reads record by record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from schemas.avro_types import kind_of, parsed, record_tree, title
from schemas.errors import BadSchemaError

if TYPE_CHECKING:
    from schemas.store import AvroType, Schema

MOST_VALUES: Final = 100_000
"""Most values of a record whose arrays and maps are empty: named types refer to each other, so few lines can name billions."""


def parsed_bounded(schema: Schema) -> Any:
    """As `avro_types.parsed`, for a schema that anybody may have registered.

    Raises:
        BadSchemaError: it is no record, or contains itself (fastavro overflows the C stack), or has arrays of items without a
            byte (a count of 2^40 needs no data), or more values than `MOST_VALUES`.
    """
    values = _Sizes(title(schema)).of(record_tree(schema))[0]
    if values > MOST_VALUES:
        raise BadSchemaError(f"{title(schema)}: expected at most {MOST_VALUES:,} values in a record, found {values:,}")
    return parsed(schema)


class _Sizes:
    """Values and least bytes of types, each type looked at once."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._known: dict[int, tuple[int, int]] = {}

    def of(self, tree: AvroType) -> tuple[int, int]:
        if id(tree) not in self._known:
            self._known[id(tree)] = self._look(tree)
        return self._known[id(tree)]

    def _look(self, tree: AvroType) -> tuple[int, int]:
        kind = kind_of(tree)
        if kind == "union":
            sizes = [self.of(branch) for branch in tree]
            return max((values for values, _ in sizes), default=1), 1
        if kind in ("record", "error"):
            sizes = [self.of(field["type"]) for field in tree["fields"]]
            return 1 + sum(values for values, _ in sizes), sum(least for _, least in sizes)
        if kind == "array":
            values, least = self.of(tree["items"])
            if not least:
                raise BadSchemaError(
                    f"{self._place}: expected array items that take at least a byte, found some of none"
                )
            return max(values, 1), 1
        if kind == "map":
            return self.of(tree["values"])[0], 1
        return 1, int(tree["size"]) if kind == "fixed" else int(kind != "null")
