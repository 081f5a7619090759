"""Reads Avro records one by one with fastavro, for the schemas that the block reader can't read.

Intact records come out the same either way. Of malformed ones fastavro takes some that the block reader refuses: a boolean of
2, a varint with more bytes than its type has, a union's or an enum's index from the end, a block of another size than it states.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import fastavro
import polars as pl
from fastavro.read import SchemaResolutionError

from millstream.schemas.avro.columns import Source
from millstream.schemas.errors import FaultyRecords, Unreadable
from millstream.schemas.wire import HEAD_BYTES

_MOST_BYTES = 2 << 20  # of a record: as Python objects, all its fields at a time, it takes up to 160 times as many


@dataclass(frozen=True, slots=True)
class RecordReader:
    """Reads wire-format values of one writer schema, all or none of them."""

    writer: Any  # as fastavro parsed it
    whole: Any  # a schema with the same encoding, see `same_bytes`
    reader: Any  # the wanted fields that the writer has, as fastavro parsed it
    sources: list[Source]

    def read(self, values: Sequence[bytes], *, checked: bool = False) -> pl.DataFrame:  # noqa: ARG002  (reading is checking)
        """Return a row per value.

        Raises FaultyRecords with those that can't be read, or Unreadable where a value is beyond its type.
        """
        records: list[dict[str, Any]] = []
        faults: dict[int, str | Unreadable] = {}
        for row, value in enumerate(values):
            try:
                records.append(self._record(value))
            except Unreadable as fault:
                faults[row] = fault
        if faults:
            raise FaultyRecords(faults)
        try:
            return pl.DataFrame([_column(source, records) for source in self.sources])
        except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
            # fastavro reads an int field of any size; the column refuses it.
            raise Unreadable("undecodable", f"a value doesn't fit its type: {error}") from error

    def _record(self, value: bytes) -> dict[str, Any]:
        if len(value) > _MOST_BYTES:
            raise Unreadable(
                "undecodable",
                f"expected at most {_MOST_BYTES:,} bytes of a record with maps, unions or arrays of records, found "
                f"{len(value):,}: send smaller records",
            )
        body = BytesIO(value)
        try:
            # Of fields that aren't wanted fastavro takes any claim: text that goes on behind the record's end, an array of 2^62
            # items. What is read is checked.
            body.seek(HEAD_BYTES)
            fastavro.schemaless_reader(body, self.whole, None)
            left = len(value) - body.tell()
            body.seek(HEAD_BYTES)
            record = fastavro.schemaless_reader(body, self.writer, self.reader)
        except SchemaResolutionError as error:
            raise Unreadable("schema_incompatible", f"the reader schema doesn't take this record: {error}") from error
        except Exception as error:  # EOFError, IndexError, UnicodeDecodeError, MemoryError, ...: malformed in many ways
            said = str(error).partition(" from <_io.")[0]  # fastavro appends its buffer's address
            raise Unreadable("undecodable", f"the Avro body is malformed: {type(error).__name__}: {said}") from error
        if left:
            raise Unreadable("undecodable", f"{left} bytes are left over after the last field")
        assert isinstance(record, dict)
        return record


def _column(source: Source, records: list[dict[str, Any]]) -> pl.Series:
    name = source.field.name
    if source.writer_name is None:
        return source.constant(len(records))
    return pl.Series(name, [record[name] for record in records], source.field.dtype)
