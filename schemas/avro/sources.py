"""Finds the wanted columns in the records of a writer schema."""

from dataclasses import dataclass

import numpy as np

from millstream.schemas.avro.empty import refuse_many_empty
from millstream.schemas.avro.types import NO_DEFAULT, Field, record_tree, title
from millstream.schemas.column import Column, column_of
from millstream.schemas.errors import Unreadable
from millstream.schemas.store import AvroType, Schema


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a wanted column."""

    field: Field
    writer_name: str | None  # None: the writer doesn't have the field, and all rows get the default
    writer_type: AvroType  # a tree; "null" if the writer doesn't have the field

    def default(self, rows: int) -> Column:
        """The column of a field that the writer doesn't have, with so many rows."""
        return column_of([self.field.default], self.field.dtype).take(np.zeros(rows, np.int64))


def sources_of(writer: Schema, reader: Schema, fields: list[Field]) -> list[Source]:
    """Find each wanted field in the writer schema.

    Raises Unreadable (reason schema_incompatible) where a field has neither a value in these records nor a default, and
    BadSchemaError for a writer schema whose records can't be read at all.
    """
    tree = record_tree(writer)
    refuse_many_empty(tree, writer)
    types = {entry["name"]: entry["type"] for entry in tree["fields"]}
    return [_source(field, types, writer, reader) for field in fields]


def _source(field: Field, types: dict[str, AvroType], writer: Schema, reader: Schema) -> Source:
    name = next((name for name in (field.name, *field.aliases) if name in types), None)
    if name is None and field.default is NO_DEFAULT:
        raise Unreadable(
            "schema_incompatible",
            f"{title(writer)}, which the record was written with, lacks the field '{field.name}' that "
            f"{title(reader)} wants: write it. If it has another name now, make a newer version of {title(reader)}, in which the "
            "field has that name among its `aliases`, or a default, and restart the workers",
        )
    return Source(field, name, types[name] if name else "null")
