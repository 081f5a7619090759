"""Decodes Avro records into columns, many at a time.

Records become columns in C, a whole poll in one call (`columns`). Records of schemas that it has no program for are read one
by one (`each`), and all where it was not compiled. Both give the same columns. Each record is checked by itself, so what is
wrong with one never depends on its neighbours.
"""

import json
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from millstream.schemas.arrays import Ints
from millstream.schemas.avro.columns import ColumnReader, column_reader, why_not_compiled
from millstream.schemas.avro.each import RecordReader
from millstream.schemas.avro.evolution import silent_defaults
from millstream.schemas.avro.heads import by_head
from millstream.schemas.avro.limits import types_of
from millstream.schemas.avro.record_reader import record_reader
from millstream.schemas.avro.sources import sources_of
from millstream.schemas.avro.types import parsed, title
from millstream.schemas.avro.wanted import wanted_columns
from millstream.schemas.column import column_of
from millstream.schemas.decoded import BadRecord, Decoded, rows_named
from millstream.schemas.dtypes import Dtype
from millstream.schemas.errors import BadSchemaError, NotWireFormat, SchemaUnavailable, UnknownSchema, Unreadable
from millstream.schemas.packed import Packed
from millstream.schemas.recently_used import RecentlyUsed
from millstream.schemas.store import Schema, SchemaStore
from millstream.schemas.table import Table
from millstream.schemas.time_budget import TimeBudget
from millstream.schemas.wire import schema_id_of
from millstream.schemas.wording import first_of

log = logging.getLogger(__name__)

_Reader = ColumnReader | RecordReader
# Look-ups for one poll may take this long. Then the caller tries again; the schemas found so far are cached.
_MAX_LOOK_UP_SECONDS = 15.0
# CPU time to prepare readers, which different large schemas could exhaust. A usual schema takes one or two milliseconds. Elapsed
# time would depend on what else runs on the machine.
COMPILE_BUDGET = {"share": 0.1, "burst": 5.0}
MAX_CELLS = 50_000_000  # that the columns of a record may have, if paths lead into items of arrays: 9 bytes each
MAX_NAMED_DEFAULTS = 5  # fields that a warning names
MAX_CACHE_SIZE = 50_000  # cached readers, weighed by their schemas, see `_size_of`


class AvroDecoder:
    """Decodes values in the schema-registry wire format into columns of the wanted paths (see `paths`), named by their texts.

    A column's type depends on the reader schema alone: int int32, long int64, float float32, double float64, boolean, string and
    enum string, bytes and fixed binary, array a list, record a record; the same where null is allowed. A path with `[]` gives a
    list of the values behind it. A value is null where a step on its way is null, where a list is too short for an index, and
    where a map lacks a key.
    Logical types are left out: a timestamp is the integer that it is on the wire. Text is checked for UTF-8 in wanted
    fields only.

    Raises BadFieldError for a path that isn't in the schema or can't be a column.
    """

    def __init__(self, store: SchemaStore, reader: Schema, paths: Sequence[str]) -> None:
        self._store = store
        self._reader = reader
        self._wanted = wanted_columns(reader, paths)
        self._compiling = TimeBudget(**COMPILE_BUDGET)
        self._readers = RecentlyUsed[bytes, _Reader | Unreadable](MAX_CACHE_SIZE)  # by head
        self._usual = b""  # the head of most records in the last poll
        if (missing := why_not_compiled()) is not None:
            log.info("Avro records are read one by one, which takes more CPU: %s", missing)

    @property
    def columns(self) -> Mapping[str, Dtype]:
        """The wanted paths and their types, which all tables have."""
        return self._wanted.columns

    def decode(self, values: Sequence[bytes]) -> Decoded:
        """Decode values. The result has the errors of values that can't be decoded. Raises only SchemaUnavailable (retry)."""
        packed = Packed.of(values)
        cells = self._wanted.cells_per_item
        if not cells or cells * packed.longest <= MAX_CELLS:
            return self._wanted.in_pieces(packed, self._fields_of)
        error = (
            f"expected at most {MAX_CELLS // cells:,} bytes, because {cells} paths lead into items of arrays: send smaller "
            "records"
        )
        is_large = cells * packed.lengths > MAX_CELLS
        large = _all_bad(np.flatnonzero(is_large).tolist(), Unreadable("undecodable", error))
        rows = np.flatnonzero(~is_large)
        with rows_named(rows):
            return Decoded.concat([(rows, self._wanted.in_pieces(packed.take(rows), self._fields_of))], large)

    def _fields_of(self, packed: Packed) -> Decoded:
        """Decode values into the columns of the wanted top-level fields. Raises SchemaUnavailable."""
        usual = self._readers.get(self._usual)
        if not isinstance(usual, ColumnReader):
            return self._by_schema(packed)
        decoded, others = usual.read(packed)  # also finds the values of other schemas, cheaper than grouping all
        if not len(others):
            return decoded
        if 2 * len(others) > len(packed):
            self._usual = b""  # find another
        return Decoded.concat([(np.arange(len(packed)), decoded), (others, self._by_schema(packed.take(others)))])

    def _by_schema(self, values: Packed) -> Decoded:
        """Decode values of any schemas. Raises SchemaUnavailable."""
        until = time.monotonic() + _MAX_LOOK_UP_SECONDS
        parts: list[tuple[Ints, Decoded]] = []
        bad: list[BadRecord] = []
        # The most frequent schema is looked up first, so a flood of other IDs can't starve it.
        groups = by_head(values)
        for head, rows in groups:
            try:
                reader = self._readers.get(head) or self._look_up(head, until)
            except SchemaUnavailable as error:
                error.row = int(rows[0])
                raise
            if isinstance(reader, Unreadable):
                bad += _all_bad(rows.tolist(), reader)
                continue
            of_head = values if len(groups) == 1 else values.take(rows)
            if isinstance(reader, RecordReader):
                parts.append((rows, reader.read(of_head)))
            else:
                self._usual = self._usual or head
                parts.append((rows, reader.read(of_head)[0]))
        return Decoded.concat(parts or [(np.empty(0, np.int64), self._none([]))], bad)

    def _none(self, bad: list[BadRecord]) -> Decoded:
        table = Table({field.name: column_of([], field.dtype) for field in self._wanted.fields})
        return Decoded.of(table, np.empty(0, np.int64), bad)

    def _look_up(self, head: bytes, until: float) -> _Reader | Unreadable:
        """The reader of an ID that is not known yet; `until` is on the monotonic clock. Raises SchemaUnavailable."""
        if time.monotonic() > until:
            raise SchemaUnavailable(
                f"the registry is slow: the schemas of these records were looked up for {_MAX_LOOK_UP_SECONDS:g} s, and more are "
                "missing"
            )
        try:
            writer = self._store.by_id(schema_id_of(head))
        except NotWireFormat as error:
            return Unreadable("undecodable", str(error))
        except UnknownSchema as error:
            return Unreadable("unknown_schema", str(error))  # not cached: the schema may be registered later
        except BadSchemaError as error:
            return Unreadable("schema_incompatible", str(error))  # the store caches it
        if not self._compiling.allows(time.monotonic()):
            return Unreadable(
                "unknown_schema",
                f"{title(writer)} was not prepared for reading: records of many large schemas come at a time. Replay this record "
                "later",
            )
        began = time.thread_time()
        reader = self._compiled(head, writer)
        self._compiling.spend(time.monotonic(), time.thread_time() - began)
        self._readers.put(head, reader, _size_of(writer))
        return reader

    def _compiled(self, head: bytes, writer: Schema) -> _Reader | Unreadable:
        try:
            sources = sources_of(writer, self._reader, self._wanted.fields)
            if defaults := silent_defaults(writer, self._reader, self._wanted.fields):
                self._warn(writer, defaults)
            return column_reader(head, writer, sources) or record_reader(writer, self._reader, sources)
        except BadSchemaError as error:
            return Unreadable("schema_incompatible", str(error))
        except Unreadable as error:
            return error

    def _warn(self, writer: Schema, defaults: Mapping[str, Any]) -> None:
        """Say which fields have the same value in all records of a writer schema."""
        named = [f"`{path}` (default {default!r:.40})" for path, default in defaults.items()]
        log.warning(
            "%s lacks %s: all its records get the default of %s. If the producer renamed a field, write the old and the new name "
            "as in `millstream docs registry#when-schemas-change`",
            title(writer),
            first_of(named, MAX_NAMED_DEFAULTS),
            title(self._reader),
        )


def _size_of(writer: Schema) -> int:
    """Weight of a schema's reader in the cache: its types, plus its text (names, symbols)."""
    try:
        types = types_of(parsed(writer))
    except BadSchemaError:
        types = 0
    return 10 + types + len(json.dumps(writer.definition)) // 64


def _all_bad(rows: Sequence[int], error: Unreadable) -> list[BadRecord]:
    return [BadRecord.of(row, error.reason, str(error)) for row in rows]
