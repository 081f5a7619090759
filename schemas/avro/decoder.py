"""Avro records to columns, many at a time.

Where the writer schema allows, the values of a poll become one block that polars reads in one go (`block`), after
`bounds` has found the malformed ones; where all of them are laid out alike not even that is needed (`layout`).
Records of other schemas are read one by one (`each`). All give the same columns; `plan` says which schema goes
which way. Each record is checked by itself, so what is wrong with one never depends on its neighbours.
"""

import json
import time
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from millstream.schemas.avro.block import BlockReader
from millstream.schemas.avro.each import RecordReader
from millstream.schemas.avro.heads import Rows, by_head
from millstream.schemas.avro.limits import types_of
from millstream.schemas.avro.plan import block_reader, record_reader, resolve
from millstream.schemas.avro.types import parsed, title, wanted_fields
from millstream.schemas.decoded import BadRecord, Decoded
from millstream.schemas.errors import (
    BadSchemaError,
    FaultyRecords,
    NotWireFormat,
    SchemaUnavailable,
    UnknownSchema,
    Unreadable,
)
from millstream.schemas.packed import Packed
from millstream.schemas.recently_used import RecentlyUsed
from millstream.schemas.store import Schema, SchemaStore
from millstream.schemas.time_budget import TimeBudget
from millstream.schemas.wire import HEAD_BYTES, schema_id_of

_LONGEST_ERROR = 500  # characters; polars and fastavro quote data and schemas at length
_Reader = BlockReader | RecordReader
_MOST_SECONDS = 15.0  # of look-ups for one poll; those that it gave are kept, and the caller comes back for the others
# Time to prepare readers: large schemas, one a record, would take all of it. A usual schema takes one or two milliseconds.
_COMPILING = {"share": 0.1, "burst": 5.0}
_MOST_KEPT = 50_000  # cached readers, weighed by their schemas, see `_size_of`


class AvroDecoder:
    """Decodes values in the schema-registry wire format into columns of the wanted top-level fields.

    A column's type depends on the reader schema's field alone: int Int32, long Int64, float Float32, double Float64,
    boolean, string and enum String, bytes and fixed Binary, array List, record Struct; the same where null is allowed.
    Logical types are left out: a timestamp is the integer that it is on the wire. Text is checked for UTF-8 in wanted
    fields only.

    Raises BadFieldError for a field that isn't there or can't be a column.
    """

    def __init__(self, store: SchemaStore, reader: Schema, fields: Sequence[str]) -> None:
        self._store = store
        self._reader = reader
        self._fields = wanted_fields(reader, fields)
        self._compiling = TimeBudget(**_COMPILING)
        self._readers = RecentlyUsed[bytes, _Reader | Unreadable](_MOST_KEPT)  # by a value's head

    @property
    def columns(self) -> Mapping[str, pl.DataType]:
        """The wanted fields and their types, as every frame has them."""
        return {field.name: field.dtype for field in self._fields}

    def decode(self, values: Sequence[bytes]) -> Decoded:
        """Decode values; what is wrong with a value is in the result. Raises only SchemaUnavailable (retry)."""
        if not values:
            return self._none([])
        known = self._readers.get(values[0][:HEAD_BYTES])
        if isinstance(known, BlockReader) and (alike := known.read_alike(values)) is not None:
            return Decoded.of(alike, np.arange(len(values)), [])
        packed = Packed.of(values)
        groups = by_head(packed)
        until = time.monotonic() + _MOST_SECONDS
        parts: list[tuple[Rows, Decoded]] = []
        bad: list[BadRecord] = []
        # The most frequent schema is looked up first, so a flood of other IDs can't starve it.
        for head, rows in groups:
            try:
                reader = self._readers.get(head) or self._look_up(head, until)
            except SchemaUnavailable as error:
                error.row = int(rows[0])
                raise
            if isinstance(reader, Unreadable):
                bad += _all_bad(rows.tolist(), reader)
            elif len(groups) == 1:
                return self._read(reader, packed)
            else:
                parts.append((rows, self._read(reader, packed.take(rows))))
        return Decoded.end_to_end(parts or [(np.empty(0, np.int64), self._none([]))], bad)

    def _read(self, reader: _Reader, values: Packed) -> Decoded:
        most = reader.read_most(values) if isinstance(reader, BlockReader) else None
        if most is None:
            return self._read_all(reader, values)
        frame, rows = most
        alike = Decoded.of(frame, np.arange(len(rows)), [])
        if len(rows) == len(values):
            return alike
        is_odd = np.ones(len(values), np.bool_)
        is_odd[rows] = False
        odd = np.flatnonzero(is_odd)
        return Decoded.end_to_end([(rows, alike), (odd, self._read_all(reader, values.take(odd)))])

    def _read_all(self, reader: _Reader, values: Packed) -> Decoded:
        frames, rows, bad = _read_the_good(reader, values)
        if not frames:
            return self._none(bad)
        return Decoded.of(pl.concat(frames) if len(frames) > 1 else frames[0], rows, bad)

    def _none(self, bad: list[BadRecord]) -> Decoded:
        return Decoded.of(pl.DataFrame(schema=dict(self.columns)), np.empty(0, np.int64), bad)

    def _look_up(self, head: bytes, until: float) -> _Reader | Unreadable:
        """The reader of an ID that is not known yet; `until` is on the monotonic clock. Raises SchemaUnavailable."""
        if time.monotonic() > until:
            raise SchemaUnavailable(
                f"the registry is slow: the schemas of these records were looked up for {_MOST_SECONDS:g} s, and more are missing"
            )
        try:
            writer = self._store.by_id(schema_id_of(head))
        except NotWireFormat as error:
            return Unreadable("undecodable", str(error))
        except UnknownSchema as error:
            return Unreadable("unknown_schema", str(error))  # not cached: the schema may be registered later
        except BadSchemaError as error:
            return Unreadable("schema_incompatible", str(error))  # the store caches it
        began = time.monotonic()
        if not self._compiling.allows(began):
            return Unreadable(
                "unknown_schema",
                f"{title(writer)} was not prepared for reading: records of many large schemas come at a time. Replay this record "
                "later",
            )
        reader = self._compiled(writer)
        self._compiling.spend(time.monotonic(), time.monotonic() - began)
        self._readers.put(head, reader, _size_of(writer))
        return reader

    def _compiled(self, writer: Schema) -> _Reader | Unreadable:
        try:
            sources = resolve(writer, self._reader, self._fields)
            return block_reader(writer, sources) or record_reader(writer, self._reader, sources)
        except BadSchemaError as error:
            return Unreadable("schema_incompatible", str(error))
        except Unreadable as error:
            return error


def _size_of(writer: Schema) -> int:
    """Weight of a schema's reader in the cache: its types, plus its text (names, symbols)."""
    try:
        types = types_of(parsed(writer))
    except BadSchemaError:
        types = 0
    return 10 + types + len(json.dumps(writer.definition)) // 64


def _read_the_good(reader: _Reader, values: Sequence[bytes]) -> tuple[list[pl.DataFrame], Rows, list[BadRecord]]:
    """Read all values; where some can't be read, find them by halving and read the others. Both ascending by row."""
    frames: list[pl.DataFrame] = []
    good: list[int] = []
    bad: list[BadRecord] = []
    todo = [(list(range(len(values))), False)]
    while todo:
        rows, checked = todo.pop()
        try:
            chosen = values if len(rows) == len(values) else [values[row] for row in rows]
            frames.append(reader.read(chosen, checked=checked))
            good += rows
        except FaultyRecords as error:
            faults = error.faults
            bad += [_bad(rows[index], fault) for index, fault in faults.items()]
            rest = [row for index, row in enumerate(rows) if index not in faults]
            todo += [(rest, True)] if rest else []
        except Unreadable as error:
            if len(rows) == 1:
                bad.append(_bad(rows[0], error))
            else:
                middle = len(rows) // 2
                # The first half is taken up next: rows stay ascending.
                todo += [(rows[middle:], checked), (rows[:middle], checked)]
    return frames, np.array(good, np.int64), sorted(bad, key=lambda record: record.row)


def _all_bad(rows: Sequence[int], error: Unreadable) -> list[BadRecord]:
    reason, text = error.reason, str(error)[:_LONGEST_ERROR]
    return [BadRecord(row, reason, text) for row in rows]


def _bad(row: int, fault: str | Unreadable) -> BadRecord:
    error = Unreadable("undecodable", fault) if isinstance(fault, str) else fault
    return BadRecord(row, error.reason, str(error)[:_LONGEST_ERROR])
