"""Reads Avro records one by one with fastavro, if `columns` isn't compiled or has no program for their schema.

Both give the same result for valid records. fastavro accepts some malformed records that `columns` rejects: a boolean of 2, a
varint that is too long for its type, a negative index of a union or an enum, a block whose size is not the stated one.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import fastavro
import numpy as np
from fastavro.read import SchemaResolutionError

from millstream.schemas.avro.map_entries import has_maps, with_maps
from millstream.schemas.avro.sources import Source
from millstream.schemas.avro.types import nullable
from millstream.schemas.column import Column, column_of
from millstream.schemas.decoded import BadRecord, Decoded
from millstream.schemas.errors import Unreadable
from millstream.schemas.store import AvroType
from millstream.schemas.table import Table
from millstream.schemas.wire import HEAD_BYTES

# Messages of fastavro:
_TOO_SHORT = re.compile(r"Expected (\d+) bytes, read (\d+)\.?")
_MISMATCH = re.compile(r"[Ss]chema mismatch: (.+) (?:is not|not found in) (.+)", re.DOTALL)
_NO_DEFAULT = re.compile(r"No default value for field (\S+) in (.+)")
_OWN_NAMESPACE = re.compile(r"\b[rw]\d+\.")  # see `record_reader._Apart`
_MOST_MISFITS = 100
_MOST_BYTES = 2 << 20  # bytes of a record: as Python objects, all its fields together may take 160 times as many
_MOST_SEARCHED = 64  # fields of a damaged record, for the message
_Placed = tuple[int, dict[str, Any]]  # a row number and its record


@dataclass(frozen=True, slots=True)
class RecordReader:
    """Reads wire-format values of one writer schema."""

    writer: Any  # the writer schema, parsed by fastavro
    whole: Any  # a schema with the same encoding, see `same_bytes`
    reader: Any  # a schema of the wanted parts of fields that the writer has, parsed by fastavro
    sources: list[Source]
    about: str  # begins the message about records that the reader schema doesn't take
    misfits: dict[str, str] = field(default_factory=dict)  # fastavro's message about such a record -> ours

    def read(self, values: Iterable[bytes]) -> Decoded:
        """Read the values. The result names the error of each bad value."""
        records: list[_Placed] = []
        bad: list[BadRecord] = []
        for row, value in enumerate(values):
            try:
                records.append((row, self._record(value)))
            except Unreadable as fault:
                bad.append(_bad(row, fault))
        tables = list(self._tables(records, bad)) if records else [self._table([])]
        refused = {one.row for one in bad}
        rows = [row for row, _ in records if row not in refused]
        return Decoded.of(Table.concat(tables), np.array(rows, np.int64), sorted(bad))

    def _tables(self, records: Sequence[_Placed], bad: list[BadRecord]) -> Iterator[Table]:
        """Make tables of the records. If a record doesn't fit, halving finds it. Yields at least one table."""
        try:
            yield self._table(records)
        except Unreadable as fault:
            if len(records) == 1:
                bad.append(_bad(records[0][0], fault))
                yield self._table([])
                return
            middle = len(records) // 2
            yield from self._tables(records[:middle], bad)
            yield from self._tables(records[middle:], bad)

    def _table(self, records: Sequence[_Placed]) -> Table:
        return Table({source.field.name: self._column(source, records) for source in self.sources})

    def _column(self, source: Source, records: Sequence[_Placed]) -> Column:
        name = source.field.name
        if source.writer_name is None:
            return source.default(len(records))
        values = [record[name] for _, record in records]
        if has_maps(source.field.type):
            values = [with_maps(value, source.field.type, name) for value in values]
        try:
            return column_of(values, source.field.dtype)
        except (TypeError, ValueError, OverflowError) as error:
            # fastavro accepts an int of any size; the column doesn't.
            raise Unreadable("undecodable", f"field '{name}': a value doesn't fit its type: {error}") from error

    def _record(self, value: bytes) -> dict[str, Any]:
        if len(value) > _MOST_BYTES:
            raise Unreadable(
                "undecodable",
                f"expected at most {_MOST_BYTES:,} bytes, because records of this schema are read one by one, found "
                f"{len(value):,}: send smaller records",
            )
        body = BytesIO(value)
        try:
            # In fields that aren't wanted, fastavro checks no lengths: it accepts a text beyond the record's end, or an array of
            # 2^62 items. So read the whole record first, which checks them.
            body.seek(HEAD_BYTES)
            fastavro.schemaless_reader(body, self.whole, None)
            left = len(value) - body.tell()
            body.seek(HEAD_BYTES)
            record = fastavro.schemaless_reader(body, self.writer, self.reader)
        except SchemaResolutionError as error:
            raise Unreadable("schema_incompatible", f"{self.about}: {self._misfit(value, error)}") from error
        except Exception as error:  # EOFError, IndexError, UnicodeDecodeError, MemoryError, ...
            said = f"the Avro body is malformed: {self._damaged_field(value)}{malformation(error)}"
            raise Unreadable("undecodable", said) from error
        if left:
            raise Unreadable("undecodable", f"{left} bytes are left over after the last field")
        assert isinstance(record, dict)
        return record

    def _damaged_field(self, value: bytes) -> str:
        """The first top-level field that can't be read, for the message; empty: each one can, alone, or there are too many."""
        if len(self.writer["fields"]) > _MOST_SEARCHED:  # fastavro looks at all types of the schema for each field
            return ""
        body = BytesIO(value)
        body.seek(HEAD_BYTES)
        for entry in self.writer["fields"]:
            try:
                fastavro.schemaless_reader(body, self.writer | {"fields": [entry]}, None)
            except Exception:  # see `_record`
                return f"field '{entry['name']}': "
        return ""

    def _misfit(self, value: bytes, error: SchemaResolutionError) -> str:
        """Which field of the record doesn't fit the reader schema, and why. `error`: of the whole record.

        To find the field takes long, and all records may have the same fault. So the messages are kept.
        """
        said = str(error)
        if said in self.misfits:
            return self.misfits[said]
        found = self._misfitting_field(value) or misfit(error)
        if len(self.misfits) < _MOST_MISFITS:
            self.misfits[said] = found
        return found

    def _misfitting_field(self, value: bytes) -> str:
        try:
            found = self._find_misfit(value, self.reader, lambda record: record)
        except Exception:  # a damaged record: fastavro skips the items of some fields by a length that it doesn't check
            return ""
        return "" if found is None else f"field '{found[0]}': {misfit(found[1])}"

    def _find_misfit(
        self, value: bytes, record: dict[str, Any], reader_with: Callable[[dict[str, Any]], Any]
    ) -> tuple[str, SchemaResolutionError] | None:
        """The path of the innermost field that doesn't fit, and what fastavro says of it; None: each field fits.

        Args:
            value: of the whole record.
            record: a record in the reader schema.
            reader_with: makes the reader schema with another record in its place.
        """
        for entry in record["fields"]:
            alone = record | {"fields": [entry]}
            try:
                fastavro.schemaless_reader(BytesIO(value[HEAD_BYTES:]), self.writer, reader_with(alone))
            except SchemaResolutionError as own:
                inner, within, mark = _record_in(entry["type"])
                deeper = inner and self._find_misfit(
                    value,
                    inner,
                    lambda part: reader_with(record | {"fields": [entry | {"type": within(part)}]}),  # noqa: B023
                )
                return (f"{entry['name']}{mark}.{deeper[0]}", deeper[1]) if deeper else (entry["name"], own)
        return None


def _record_in(tree: AvroType) -> tuple[dict[str, Any] | None, Callable[[AvroType], AvroType], str]:
    """The record that a type is, or that its items or its values other than null are.

    Returns:
        the record, or None; a function that makes the type with another record in its place; `[]` for the items of a list.
    """
    inner, is_nullable = nullable(tree)
    if is_nullable:
        record, within, mark = _record_in(inner)
        return record, lambda part: [branch if branch == "null" else within(part) for branch in tree], mark
    if not isinstance(tree, dict):
        return None, lambda part: part, ""
    if tree["type"] == "array":
        record, within, mark = _record_in(tree["items"])
        return record, lambda part: tree | {"items": within(part)}, f"[]{mark}"
    return (tree if tree["type"] == "record" else None), lambda part: part, ""


def misfit(error: SchemaResolutionError) -> str:
    """What doesn't fit, for a reader who doesn't know fastavro."""
    text = _OWN_NAMESPACE.sub("", str(error))
    if (types := _MISMATCH.fullmatch(text)) is not None:
        return f"it is written as {_plain(types[1])}, and the reader schema wants {_plain(types[2])}"
    if (lacking := _NO_DEFAULT.fullmatch(text)) is not None:
        return f"its record {lacking[2]} lacks '{lacking[1]}', for which the reader schema has no default"
    return text


def _plain(types: str) -> str:
    """Names of types without Python's brackets and quotes."""
    return types.replace("'", '"') if "{" in types else " or ".join(re.findall(r"[\w.-]+", types))


def malformation(error: Exception) -> str:
    """What is wrong with a malformed record, for a reader who knows neither fastavro nor Python."""
    match error:
        case UnicodeDecodeError():
            return f"a text is not UTF-8 ({error.reason} at its byte {error.start})"
        case IndexError():
            return "it ends before its fields do, or an index of a union's branch or an enum's symbol is beyond the schema's last"
        case MemoryError():
            return "a length is larger than the memory"
    text = str(error).partition(" from <_io.")[0]
    if (short := _TOO_SHORT.fullmatch(text)) is not None:
        return f"the record ends before its fields do: a value takes {short[1]} bytes, and {short[2]} are left"
    if text.startswith("Expected -"):
        text = "a text or an array has a negative length"
    elif text.startswith("cannot read "):
        text = f"the record ends before its fields do: within a {text.removeprefix('cannot read ')}"
    return text or "the record ends before its fields do"


def _bad(row: int, fault: Unreadable) -> BadRecord:
    return BadRecord.of(row, fault.reason, str(fault))
