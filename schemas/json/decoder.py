"""Decodes JSON events into columns. Each value is a JSON object, which is checked against an Avro schema, or against the types
that are wanted.

`columns` decodes many events at a time; `each` decodes the events that `columns` skips, one by one. Both give the same columns.
The result for an event never depends on other events.
"""

import logging
from collections.abc import Mapping, Sequence

import numpy as np

from millstream.schemas.avro.types import check_defaults_within, kind_of, nullable, title
from millstream.schemas.avro.wanted import Wanted, wanted_columns
from millstream.schemas.decoded import BadRecord, Decoded
from millstream.schemas.dtypes import Dtype
from millstream.schemas.errors import BadFieldError
from millstream.schemas.json.columns import ColumnReader
from millstream.schemas.json.each import EventReader
from millstream.schemas.json.untyped import columns_of_types
from millstream.schemas.packed import Packed
from millstream.schemas.store import AvroType, Schema

log = logging.getLogger(__name__)

MAX_CELLS = (
    2_000_000  # that the columns of an event may have, if paths lead into items of arrays: 9 bytes each, 100 as objects
)


class JsonDecoder:
    """Decodes JSON objects into the columns of wanted paths (see `paths`). It ignores everything else in them.

    Types are strict: a text isn't a number, and a fraction isn't an int; but an int is accepted for a float or double. A value
    may begin with the five bytes that Confluent's serializer for JSON Schema writes.
    """

    def __init__(self, wanted: Wanted) -> None:
        """Args:
        wanted: the columns. JSON must have a form for their types.
        """
        self._wanted = wanted
        self._each = EventReader(wanted.fields)
        self._columns: ColumnReader | None = None
        try:
            self._columns = ColumnReader(wanted.fields)
        except LookupError as missing:
            log.info("JSON events are read one by one, which takes more CPU: %s", missing)

    @classmethod
    def of_schema(cls, reader: Schema, paths: Sequence[str]) -> "JsonDecoder":
        """A decoder into the same columns as those of `AvroDecoder`.

        A map is a JSON object. A missing field gets the schema's default. Without a default, a missing field is an error, even if
        it may be null.

        Raises BadFieldError if a path isn't in the schema, if JSON has no value for its type (bytes, fixed, an enum without
        symbols), or if a default is wrong.
        """
        wanted = wanted_columns(reader, paths)
        for field in wanted.fields:
            place = f"field '{field.name}' of {title(reader)}"
            _refuse_unreadable(field.type, place)
            check_defaults_within(field.type, place)
        return cls(wanted)

    @classmethod
    def of_types(cls, types: Mapping[str, str]) -> "JsonDecoder":
        """A decoder of events without a schema. Everything on the wanted paths may be null or missing.

        Args:
            types: path -> `boolean`, `int64`, `float64`, `string`, `scalar` (a text, or an integer as its decimal text),
                `number` (a number, or a boolean as 1 or 0) or `mixed` (a text, a number or a boolean, as its text). For a
                path with `[]`, it is the type of the items.

        Raises BadFieldError for a path that is malformed, and for paths that contradict each other.
        """
        return cls(columns_of_types(types))

    @property
    def columns(self) -> Mapping[str, Dtype]:
        """The wanted paths and their types; every table has these columns."""
        return self._wanted.columns

    def decode(self, values: Sequence[bytes]) -> Decoded:
        """Decode values. The result names the error of each bad value. Raises nothing."""
        packed = Packed.of(values)
        large = self._too_large(packed)
        if not large:
            return self._wanted.in_pieces(packed, self._fields_of)
        rows = np.delete(np.arange(len(packed)), [bad.row for bad in large])
        return Decoded.concat([(rows, self._wanted.in_pieces(packed.take(rows), self._fields_of))], large)

    def _too_large(self, values: Packed) -> list[BadRecord]:
        """The events whose columns would take too much memory: each `{}` in an array may take a cell in many columns."""
        cells = self._wanted.cells_per_item
        if not cells or cells * values.longest <= 2 * MAX_CELLS:  # an object has two bytes
            return []
        long = np.flatnonzero(cells * values.lengths > 2 * MAX_CELLS).tolist()
        return [
            BadRecord(
                row,
                "undecodable",
                f"expected at most {MAX_CELLS // cells:,} objects in an event, because {cells} paths lead into items of arrays, "
                f"found {found:,}: send smaller events",
            )
            for row in long
            if cells * (found := values[row].count(b"{")) > MAX_CELLS
        ]

    def _fields_of(self, values: Packed) -> Decoded:
        """Decode values into the columns of the wanted top-level fields."""
        if self._columns is None:
            return self._each.read(values)
        table, is_odd = self._columns.read(values)
        if not is_odd.any():
            return Decoded.of(table, np.arange(len(values)), [])
        good, odd = np.flatnonzero(~is_odd), np.flatnonzero(is_odd)
        each = self._each.read([values[row] for row in odd.tolist()])
        return Decoded.concat([(good, Decoded.of(table, np.arange(len(good)), [])), (odd, each)])


def _refuse_unreadable(tree: AvroType, place: str) -> None:
    core, _ = nullable(tree)
    kind = kind_of(core)
    if kind == "union":
        raise BadFieldError(
            f"{place}: a field of JSON events that have a schema can't be of several types: leave out `input.schema`, and write "
            "`type: any` beside the field"
        )
    if kind in ("bytes", "fixed"):
        raise BadFieldError(f"{place}: JSON has no {kind}: send these events as Avro, or make the field a string")
    if kind == "enum" and not core["symbols"]:
        raise BadFieldError(f"{place}: expected an enum with symbols, found none: add them, or make the field a string")
    if kind == "array":
        _refuse_unreadable(core["items"], place)
    if kind == "record":
        for entry in core["fields"]:
            _refuse_unreadable(entry["type"], place)
