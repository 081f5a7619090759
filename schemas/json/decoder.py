"""Decodes JSON events into columns. Each value is a JSON object, which is checked against the fields of the Avro reader schema.

`columns` decodes many events at a time; `each` decodes the events that `columns` skips, one by one. Both give the same columns.
The result for an event never depends on other events.
"""

import logging
from collections.abc import Mapping, Sequence

import numpy as np

from millstream.schemas.avro.types import check_defaults_within, kind_of, nullable, title, wanted_fields
from millstream.schemas.decoded import Decoded
from millstream.schemas.dtypes import Dtype
from millstream.schemas.errors import BadFieldError
from millstream.schemas.json.columns import ColumnReader
from millstream.schemas.json.each import EventReader
from millstream.schemas.packed import Packed
from millstream.schemas.store import AvroType, Schema

log = logging.getLogger(__name__)


class JsonDecoder:
    """Decodes JSON objects into the same columns as `AvroDecoder`. It ignores fields that aren't wanted.

    Types are strict: a text isn't a number, and a fraction isn't an int; but an int is accepted for a float or double. A missing
    field gets the schema's default. Without a default, a missing field is an error, even if it may be null.

    Raises BadFieldError if a wanted field isn't in the schema, if JSON has no value for its type (bytes, fixed, an enum without
    symbols), or if its default is wrong.
    """

    def __init__(self, reader: Schema, fields: Sequence[str]) -> None:
        self._fields = wanted_fields(reader, fields)
        for field in self._fields:
            place = f"field '{field.name}' of {title(reader)}"
            _refuse_unreadable(field.type, place)
            check_defaults_within(field.type, place)
        self._each = EventReader(self._fields)
        self._columns: ColumnReader | None = None
        try:
            self._columns = ColumnReader(self._fields)
        except LookupError as missing:
            log.info("JSON events are read one by one, which takes more CPU: %s", missing)

    @property
    def columns(self) -> Mapping[str, Dtype]:
        """The wanted fields and their types; every table has these columns."""
        return {field.name: field.dtype for field in self._fields}

    def decode(self, values: Sequence[bytes]) -> Decoded:
        """Decode values. The result names the error of each bad value. Raises nothing."""
        if self._columns is None:
            return self._each.read(values)
        table, is_odd = self._columns.read(Packed.of(values))
        if not is_odd.any():
            return Decoded.of(table, np.arange(len(values)), [])
        good, odd = np.flatnonzero(~is_odd), np.flatnonzero(is_odd)
        each = self._each.read([values[row] for row in odd.tolist()])
        return Decoded.concat([(good, Decoded.of(table, np.arange(len(good)), [])), (odd, each)])


def _refuse_unreadable(tree: AvroType, place: str) -> None:
    core, _ = nullable(tree)
    kind = kind_of(core)
    if kind in ("bytes", "fixed"):
        raise BadFieldError(f"{place}: JSON has no {kind}: send these events as Avro, or make the field a string")
    if kind == "enum" and not core["symbols"]:
        raise BadFieldError(f"{place}: expected an enum with symbols, found none: add them, or make the field a string")
    if kind == "array":
        _refuse_unreadable(core["items"], place)
    if kind == "record":
        for entry in core["fields"]:
            _refuse_unreadable(entry["type"], place)
