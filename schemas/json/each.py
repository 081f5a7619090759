"""Reads JSON events one by one with msgspec: those that `columns` skips, or all events if it isn't compiled.

It rejects values that aren't events, with the reason.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from millstream.schemas.avro.types import NO_DEFAULT, Field, default_of, kind_of, nullable
from millstream.schemas.column import Column, column_of
from millstream.schemas.decoded import BadRecord, Decoded
from millstream.schemas.dtypes import FLOAT32_LIMIT
from millstream.schemas.errors import BadFieldError
from millstream.schemas.json.mismatch import reason_of
from millstream.schemas.store import AvroType
from millstream.schemas.table import Table
from millstream.schemas.wire import without_head

TOGETHER = 256  # events that exist as objects at a time: so they are still in the CPU's cache when columns are built
_MOST_FILLED = 200_000  # lists and records that defaults may add to an event: each `{}` (two bytes) may get many
_TOO_MUCH_FILLED = (
    f"the schema's defaults could add more than {_MOST_FILLED:,} lists and records to the event's objects: send smaller events, "
    "or write these fields out"
)
_TYPES: dict[str, Any] = {
    "boolean": bool,
    "int": Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)],
    "long": Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)],
    "float": Annotated[float, msgspec.Meta(gt=-FLOAT32_LIMIT, lt=FLOAT32_LIMIT)],
    "double": float,
    "string": str,
    "scalar": str | int,
    "number": float | bool,
    "mixed": str | int | float | bool,
}
_MOST_BYTES = 1 << 22  # bytes of events that exist as objects at a time: a list of numbers takes ten times its JSON


def _pieces(values: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """Ranges of at most `TOGETHER` events, and at most `_MOST_BYTES` bytes. A larger event is alone."""
    start, size = 0, 0
    for row, value in enumerate(values):
        if row > start and (row - start >= TOGETHER or size + len(value) > _MOST_BYTES):
            yield start, row
            start, size = row, 0
        size += len(value)
    if len(values) > start:
        yield start, len(values)


class EventReader:
    """Reads events into the columns of these fields."""

    def __init__(self, fields: Sequence[Field]) -> None:
        """Args:
        fields: the event's fields. JSON must have a form for their types.

        Raises:
            BadFieldError: a default doesn't fit its type.
        """
        self._fields = fields
        self._has_records = [_has(field.type, "record") for field in fields]
        self._has_scalars = [_has(field.type, "scalar") for field in fields]
        self._filled = sum(_filled(field.type) for field in fields)
        members = [_member(index, _type(field.type), field.default) for index, field in enumerate(fields)]
        names = {f"f{index}": field.name for index, field in enumerate(fields)}
        self._decoder = msgspec.json.Decoder(msgspec.defstruct("Event", members, rename=names, kw_only=True, gc=False))

    def read(self, values: Sequence[bytes]) -> Decoded:
        """Decode values. The result names the error of each bad value. Raises nothing."""
        rows: list[int] = []
        bad: list[BadRecord] = []
        tables = [self._table(self._events(values[start:stop], start, rows, bad)) for start, stop in _pieces(values)]
        return Decoded.of(Table.concat(tables or [self._table([])]), np.array(rows, np.int64), bad)

    def _events(self, values: Sequence[bytes], start: int, rows: list[int], bad: list[BadRecord]) -> list[Any]:
        """Decode the values of the rows from `start` on. Adds the events' rows to `rows`, and the other values to `bad`."""
        events: list[Any] = []
        decode = self._decoder.decode
        for row, with_head in enumerate(values, start):
            value = without_head(with_head)
            try:
                if self._filled and value.count(b"{") * self._filled > _MOST_FILLED:
                    bad.append(BadRecord(row, "undecodable", _TOO_MUCH_FILLED))
                    continue
                events.append(decode(value))
                rows.append(row)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                bad.append(BadRecord.of(row, "undecodable", reason_of(with_head, self._fields, str(error))))
        return events

    def _table(self, events: list[Any]) -> Table:
        columns = list(zip(*map(msgspec.structs.astuple, events), strict=True)) or [()] * len(self._fields)
        return Table({field.name: self._column(index, columns[index]) for index, field in enumerate(self._fields)})

    def _column(self, index: int, values: Sequence[Any]) -> Column:
        field = self._fields[index]
        if self._has_records[index]:
            values = msgspec.to_builtins(values)
        if self._has_scalars[index]:
            values = [_with_texts(value, field.type) for value in values]
        return column_of(values, field.dtype)


def _member(index: int, member_type: Any, default: Any) -> Any:
    name = f"f{index}"  # an Avro name may be a Python keyword, or a name that msgspec uses itself
    if default is NO_DEFAULT:
        return (name, member_type)
    if isinstance(default, list | dict):  # a record's default comes as a dict, an array's as a list
        # All events share one object: no code changes it, and a copy for each `{}` would take time and memory.
        try:
            shared = msgspec.convert(default, member_type)
        except msgspec.ValidationError as error:
            raise BadFieldError(f"a field's default doesn't fit its type: {error}") from None
        return (name, member_type, msgspec.field(default_factory=lambda: shared))
    return (name, member_type, default)


def _type(tree: AvroType) -> Any:
    core, is_nullable = nullable(tree)
    python = _core_type(core)
    return python | None if is_nullable else python


def _core_type(core: AvroType) -> Any:
    match kind_of(core):
        case "enum":
            return Literal[tuple(core["symbols"])]
        case "array":
            return list[_type(core["items"])]  # type: ignore[misc]  # a type made at run time
        case "record":
            return _struct(core)
    return _TYPES[kind_of(core)]


def _struct(record: AvroType) -> Any:
    members = [_member(index, _type(entry["type"]), default_of(entry)) for index, entry in enumerate(record["fields"])]
    names = {f"f{index}": entry["name"] for index, entry in enumerate(record["fields"])}
    return msgspec.defstruct(record["name"].rpartition(".")[2], members, rename=names, kw_only=True, gc=False)


def _filled(tree: AvroType, *, in_array: bool = False) -> int:
    """How many lists and records a type's defaults add to an empty record `{}` inside an array."""
    core, _ = nullable(tree)
    if kind_of(core) == "array":
        return _filled(core["items"], in_array=True)
    if kind_of(core) != "record":
        return 0
    own = sum(_containers(default_of(entry)) for entry in core["fields"]) if in_array else 0
    return own + sum(_filled(entry["type"], in_array=in_array) for entry in core["fields"])


def _containers(default: Any) -> int:
    if not isinstance(default, list | dict):
        return 0
    return 1 + sum(map(_containers, default.values() if isinstance(default, dict) else default))


def _has(tree: AvroType, kind: str) -> bool:
    """Whether a type is of this kind, or has such a type within."""
    core, _ = nullable(tree)
    match kind_of(core):
        case found if found == kind:
            return True
        case "array":
            return _has(core["items"], kind)
        case "record":
            return any(_has(entry["type"], kind) for entry in core["fields"])
    return False


def _with_texts(value: Any, tree: AvroType) -> Any:
    """A value with texts in place of the numbers and booleans of its scalars."""
    core, _ = nullable(tree)
    if value is None:
        return None
    match kind_of(core):
        case "scalar":
            return str(value)
        case "array":
            return [_with_texts(item, core["items"]) for item in value]
        case "record":
            return {entry["name"]: _with_texts(value[entry["name"]], entry["type"]) for entry in core["fields"]}
    return value
