"""Checks the values of a row against an Avro schema."""

import base64
import binascii
import difflib
import json
import math
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from millstream.schemas.dtypes import FLOAT32_LIMIT

_INTEGER_BITS: Final = {"int": 31, "long": 63}
_UNITS: Final = {"millis": timedelta(milliseconds=1), "micros": timedelta(microseconds=1)}
_EPOCH: Final = datetime(1970, 1, 1)
_TRUTH: Final = {"true": True, "false": False, "1": True, "0": False}


class RowError(ValueError):
    """A row doesn't fit its schema, or a record can't be shown as a row.

    `schemas.rows` raises it. The command adds the line number or the record's offset, and shows it to the user.
    """


class RowReader:
    """Checks rows against one record schema. `schema` was parsed by fastavro, `named` has its named types by full name."""

    def __init__(self, schema: Any, named: Mapping[str, Any]) -> None:
        self._schema = schema
        self._named = named

    def row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The row with all fields, in the form that fastavro writes. Raises RowError."""
        return self._record(self._schema, row, "")

    def parse_cells(self, cells: Mapping[str, str | None]) -> dict[str, Any]:
        """See `schemas.rows.parse_cells`."""
        fields = {field["name"]: field for field in self._schema["fields"]}
        row: dict[str, Any] = {}
        for name, cell in cells.items():
            field = fields.get(name)
            if field is None:
                row[name] = cell
            elif cell or not self._fills_empty(field):
                row[name] = self._parse(field["type"], cell or "")
            elif self._nullable(field["type"]):
                row[name] = None
        return row

    def _fills_empty(self, field: Mapping[str, Any]) -> bool:
        return self._nullable(field["type"]) or ("default" in field and self._kind(field["type"]) != "string")

    def _nullable(self, schema: Any) -> bool:
        return isinstance(schema, list) and "null" in map(self._kind, schema)

    def _kind(self, schema: Any) -> str:
        """The name of the Avro type; `union` for a list of branches."""
        if isinstance(schema, list):
            return "union"
        if isinstance(schema, dict):
            return self._kind(schema["type"])
        return self._kind(self._named[schema]) if schema in self._named else str(schema)

    def _parse(self, schema: Any, cell: str) -> Any:
        """The cell's value; the cell itself if it isn't a value of the schema."""
        kind = self._kind(schema)
        if kind == "union":
            parsed = (self._parse(branch, cell) for branch in schema if self._kind(branch) != "null")
            return next((value for value in parsed if not isinstance(value, str)), cell)
        try:
            match kind:
                case "boolean":
                    return _TRUTH[cell.strip().lower()]
                case "int" | "long":
                    return int(cell)
                case "float" | "double":
                    return float(cell)
                case "array" | "map" | "record":
                    return json.loads(cell)
        except (ValueError, KeyError):
            pass
        return cell

    def _value(self, schema: Any, value: Any, path: str) -> Any:
        if isinstance(schema, str) and schema in self._named:
            schema = self._named[schema]
        details = _innermost(schema)
        match kind := self._kind(schema):
            case "union":
                checked = self._union(schema, value, path)
            case "record" | "error":
                checked = self._record(details, value, path)
            case "array" | "map":
                checked = self._items(kind, details, value, path)
            case "int" | "long":
                checked = _integer(kind, details, value, path)
            case "bytes" | "fixed":
                checked = _binary(kind, details, value, path)
            case _:
                checked = _simple(kind, details, value, path)
        return checked

    def _items(self, kind: str, schema: Mapping[str, Any], value: Any, path: str) -> Any:
        if kind == "array" and isinstance(value, list):
            return [self._value(schema["items"], item, f"{path}[{index}]") for index, item in enumerate(value)]
        if kind == "map" and isinstance(value, Mapping):
            return {str(key): self._value(schema["values"], item, _join(path, key)) for key, item in value.items()}
        raise _refusal(path, "an array" if kind == "array" else "a map (an object)", value)

    def _record(self, schema: Mapping[str, Any], value: Any, path: str) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise _refusal(path, f"a record {schema['name']} (an object)", value)
        fields = {field["name"]: field for field in schema["fields"]}
        for name in value:
            if name not in fields:
                raise _unknown(_join(path, name), str(name), schema["name"], list(fields))
        return {name: self._field(field, value, _join(path, name)) for name, field in fields.items()}

    def _field(self, field: Mapping[str, Any], row: Mapping[str, Any], path: str) -> Any:
        name, schema = field["name"], field["type"]
        if name in row:
            return self._value(schema, row[name], path)
        if "default" not in field:
            raise RowError(
                f"field {path!r}: expected {self._describe(schema)}, found none. "
                "Add it: the schema has no default for it."
            )
        default = field["default"]
        first = schema[0] if isinstance(schema, list) else schema
        if isinstance(default, str) and self._kind(first) in {"bytes", "fixed"}:
            default = default.encode("latin-1")  # Avro schemas write the default of bytes as text in Latin-1
        return self._value(schema, default, path)

    def _union(self, branches: list[Any], value: Any, path: str) -> Any:
        """The value, checked by the first branch that accepts it. Floats are tried last, because they also accept integers."""
        order = sorted(branches, key=lambda branch: self._kind(branch) in {"float", "double"})
        others = [branch for branch in order if self._kind(branch) != "null"]
        if value is None and len(others) < len(branches):
            return None
        if len(others) == 1 and value is not None:
            return self._value(others[0], value, path)
        for branch in others:
            try:
                return self._branch_name(branch), self._value(branch, value, path)
            except RowError:
                continue
        raise _refusal(path, self._describe(branches), value)

    @staticmethod
    def _branch_name(branch: Any) -> str:
        """The branch's name in fastavro's `(name, value)`: the full name of a named type, else the type."""
        return str(branch.get("name", branch["type"]) if isinstance(branch, dict) else branch)

    def _describe(self, schema: Any) -> str:
        if isinstance(schema, list):
            return " or ".join(self._describe(branch) for branch in schema)
        logical = schema.get("logicalType") if isinstance(schema, dict) else None
        return f"{self._kind(schema)} ({logical})" if logical else self._kind(schema)


def _simple(kind: str, details: Mapping[str, Any], value: Any, path: str) -> Any:
    match kind:
        case "null" if value is None:
            return None
        case "boolean" if isinstance(value, bool):
            return value
        case "float" | "double" if isinstance(value, int | float) and not isinstance(value, bool):
            return _floating(kind, value, path)
        case "string" if isinstance(value, str) and _is_valid(value):
            return value
        case "enum":
            if value not in details["symbols"]:
                raise _refusal(path, "one of " + ", ".join(details["symbols"]), value)
            return value
    expected = {"string": "text of valid Unicode" if isinstance(value, str) else "text"}.get(kind, kind)
    raise _refusal(path, expected, value)


def _is_valid(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _integer(kind: str, details: Mapping[str, Any], value: Any, path: str) -> int:
    logical = details.get("logicalType", "")
    number = _ticks(logical, value) if isinstance(value, str) else value
    bound = 1 << _INTEGER_BITS[kind]
    if isinstance(number, bool) or not isinstance(number, int) or not -bound <= number < bound:
        zone = " with its zone, such as 2013-09-01T05:15:00Z" if logical.startswith("timestamp-") else ""
        or_text = f", or ISO 8601 text{zone} ({logical})" if logical else ""
        raise _refusal(path, f"{kind}: a whole number from {-bound} to {bound - 1}{or_text}", value)
    return number


def _ticks(logical: str, text: str) -> int | None:
    """ISO 8601 text as a number in the logical type's unit; None if the text isn't such a time.

    Source: https://avro.apache.org/docs/1.12.0/specification/#logical-types
    """
    subject, _, unit = logical.rpartition("-")
    try:
        if logical == "date":
            return (date.fromisoformat(text) - _EPOCH.date()).days
        dated = subject != "time"
        moment = datetime.fromisoformat(text) if dated else datetime.combine(_EPOCH, time.fromisoformat(text))
    except ValueError:
        return None
    # A timestamp is an instant, so its text needs a zone. The other types have no zone.
    if unit not in _UNITS or (moment.tzinfo is not None) != (subject == "timestamp"):
        return None
    return (moment - _EPOCH.replace(tzinfo=moment.tzinfo and UTC)) // _UNITS[unit]


def _floating(kind: str, value: float, path: str) -> float:
    try:
        number = float(value)
    except OverflowError:  # an int beyond the largest double
        raise _refusal(path, f"{kind}: a number that fits in 64 bits", value) from None
    if kind == "float" and FLOAT32_LIMIT <= abs(number) < math.inf:
        raise _refusal(path, "float: a number that fits in 32 bits", value)
    return number


def _binary(kind: str, details: Mapping[str, Any], value: Any, path: str) -> bytes | Decimal:
    if details.get("logicalType") == "decimal" and not isinstance(value, bytes):
        return _decimal(details, value, path)
    data = _bytes(value, path)
    if kind == "fixed" and len(data) != details["size"]:
        raise _refusal(path, f"exactly {details['size']} bytes", value)
    return data


def _bytes(value: Any, path: str) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str) and _is_valid(value):
        return value.encode()
    if isinstance(value, Mapping) and list(value) == ["base64"]:
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (binascii.Error, ValueError, TypeError):
            pass
    raise _refusal(path, 'bytes: text, or {"base64": "..."}', value)


def _decimal(details: Mapping[str, Any], value: Any, path: str) -> Decimal:
    precision, scale = details["precision"], details.get("scale", 0)
    if isinstance(value, str | int | float | Decimal) and not isinstance(value, bool):
        try:
            number = Decimal(str(value))
        except InvalidOperation:
            number = Decimal("NaN")
        exponent = number.as_tuple().exponent
        if isinstance(exponent, int) and -exponent <= scale and abs(number) < 10 ** (precision - scale):
            return number
    raise _refusal(path, f"a decimal of at most {precision} digits, {scale} of them after the point", value)


def _innermost(schema: Any) -> Mapping[str, Any]:
    """The dict with the details of the type: symbols, size, logicalType. {"type": {"type": ...}} is allowed."""
    while isinstance(schema, dict) and isinstance(schema["type"], dict):
        schema = schema["type"]
    return schema if isinstance(schema, dict) else {}


def _join(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


def _refusal(path: str, expected: str, found: object) -> RowError:
    shown = repr(found)
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    place = f"field {path!r}" if path else "row"
    return RowError(f"{place}: expected {expected}, found {shown} ({type(found).__name__}).")


def _unknown(path: str, name: str, record: str, fields: list[str]) -> RowError:
    near = difflib.get_close_matches(name, fields, n=1)
    advice = f"Did you mean {near[0]!r}?" if near else "Remove it, or add it to the schema."
    return RowError(f"unknown field {path!r}: the schema {record} has {', '.join(fields)}. {advice}")
