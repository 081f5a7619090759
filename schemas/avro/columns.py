"""The wanted columns and where each comes from in the records of one writer schema."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from millstream.schemas.avro.types import Field, kind_of, nullable
from millstream.schemas.errors import FaultyRecords, Unreadable
from millstream.schemas.store import AvroType


@dataclass(frozen=True)
class Source:
    """Where a wanted column comes from."""

    field: Field
    writer_name: str | None  # None: the writer doesn't have it, all rows get the default
    writer_type: AvroType  # a tree; "null" where the writer doesn't have it

    @cached_property
    def symbols(self) -> pl.Series | None:
        """An enum's symbols: the block reader gives their indexes."""
        writer, _ = nullable(self.writer_type)
        return pl.Series(writer["symbols"], dtype=pl.String) if kind_of(writer) == "enum" else None

    @cached_property
    def refuses_null(self) -> bool:
        """Whether the writer may write nulls that the reader schema doesn't allow."""
        return nullable(self.writer_type)[1] and not nullable(self.field.type)[1]

    @cached_property
    def casts(self) -> bool:
        """Whether the column's type is another than that of what is read: a number's promotion."""
        return kind_of(nullable(self.writer_type)[0]) != kind_of(nullable(self.field.type)[0])

    @cached_property
    def has_text(self) -> bool:
        """Whether the column has text, which the block reader returns as bytes."""
        return _has_text(nullable(self.writer_type)[0])

    def constant(self, rows: int) -> pl.Series:
        """The column of a field that the writer doesn't have."""
        return pl.Series(self.field.name, [self.field.default], self.field.dtype).new_from_index(0, rows)

    def convert(self, column: pl.Series) -> pl.Series:
        """Convert the block reader's column to the wanted type.

        Raises Unreadable for a null that isn't allowed, and FaultyRecords for text that isn't UTF-8.
        """
        name, dtype = self.field.name, self.field.dtype
        if self.has_text and column.dtype != dtype:
            column = _as_text(column, dtype, name)
        if self.refuses_null and column.null_count():
            raise Unreadable("schema_incompatible", f"field '{name}' is null, which the reader schema doesn't allow")
        if self.symbols is not None:
            # Indexing takes a fourth of gather()'s time, and fails where all are null.
            column = self.symbols.gather(column) if column.null_count() else self.symbols[column]
        if self.casts:
            # Avro's resolution goes through double: an integer becomes the float nearest to the double nearest to it.
            column = (column.cast(pl.Float64) if dtype == pl.Float32 else column).cast(dtype)
        return column if column.name == name else column.alias(name)


def _has_text(tree: AvroType) -> bool:
    core, _ = nullable(tree)
    match kind_of(core):
        case "array":
            return _has_text(core["items"])
        case "record":
            return any(_has_text(entry["type"]) for entry in core["fields"])
    return kind_of(core) == "string"


def _as_text(column: pl.Series, dtype: pl.DataType, name: str) -> pl.Series:
    """Decode bytes as UTF-8. Raises FaultyRecords, or PolarsError for invalid text within arrays and records."""
    try:
        return column.cast(dtype)
    except pl.exceptions.PolarsError:
        if dtype != pl.String:
            raise
    faults = [row for row, text in enumerate(column.to_list()) if text is not None and not _is_utf8(text)]
    raise FaultyRecords(dict.fromkeys(faults, f"field '{name}': invalid utf-8 in its text"))


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def assemble(sources: list[Source], read: Mapping[str, pl.Series], rows: int) -> pl.DataFrame:
    """Make the wanted columns of the writer's fields that were read, so many rows, in the order of `sources`."""
    return pl.DataFrame(
        [
            source.constant(rows) if source.writer_name is None else source.convert(read[source.writer_name])
            for source in sources
        ]
    )
