"""Finds out why a JSON text is no event: what is malformed in it, or where it has another value than expected."""

import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from millstream.schemas.avro.types import NO_DEFAULT, Field, kind_of, nullable
from millstream.schemas.dtypes import FLOAT32_LIMIT
from millstream.schemas.paths import Step, text_of
from millstream.schemas.store import AvroType
from millstream.schemas.wire import looks_like_avro, without_head

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_OTHER_MARKS = (b"\xff\xfe", b"\xfe\xff")  # of UTF-16
_EXPECTED = {
    "boolean": "true or false",
    "int": "an integer from -2^31 to 2^31 - 1",
    "long": "an integer from -2^63 to 2^63 - 1",
    "float": "a number that fits into a float",
    "double": "a number that fits into a double",
    "string": "text",
    "scalar": "text or an integer",
    "number": "a number, or true or false",
    "mixed": "text, a number, or true or false",
    "array": "an array",
    "record": "an object",
}
# Fields of the type `any` and those of filters are mixed.
NO_LISTS = (
    '. The type `any` doesn\'t cover lists: write [] behind the field, such as {field: "tags[]", type: any} in config.yaml, '
    'or "tags[]": text under `output.include` of the pipeline file'
)
_LARGEST = {"int": 2**31, "long": 2**63}
_DOUBLE_LIMIT = 2**1024 - 2**970  # the least number that is rounded to infinity
LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # half of a character, which readers of JSON refuse
_HALF = "expected whole characters, found half of one (a lone surrogate)"
_AVRO = (
    "expected JSON, found what looks like Avro. If all events are Avro, write `format: avro` under `input` in the pipeline file, "
    "and the name of their schema as `schema` (`millstream docs registry`)"
)
_LONGEST_QUOTE = 60
_PREFIX = "JSON is malformed: "  # of msgspec's messages
_UNQUOTED = ("object keys must be strings", "expected a key in quotes")  # msgspec's words, and ours
_MOST_DIGITS = 400  # those of the largest double are fewer


class _Object(list[tuple[str, Any]]):
    """The pairs of an object, because a key may occur twice."""


_OBJECTS = (dict, _Object)
_NUMBERS = (int, float)


class _MalformedError(ValueError):
    """The value is no JSON. The text says why."""


def reason_of(with_head: bytes, fields: Sequence[Field], said: str) -> str:
    """Why a value is no event with these fields. `said`: the parser's reason, for what only the parser finds."""
    if looks_like_avro(with_head):
        return _AVRO
    value = without_head(with_head)
    try:
        mismatch = _mismatch(_quickly_parsed(value), fields) or _mismatch(_parsed(value), fields)
    except _MalformedError as error:
        return str(error)
    return mismatch or _no_utf8(value) or _refused_place(value) or f"the event can't be read: {said}"


def _mismatch(event: Any, fields: Sequence[Field]) -> str | None:
    """The place where an event isn't as expected, and how."""
    if not isinstance(event, _OBJECTS):
        return f"expected a JSON object, found {in_words(event)}"
    members = [
        {"name": field.name, "type": field.type} | ({} if field.default is NO_DEFAULT else {"default": None})
        for field in fields
    ]
    fault = _fault_in_object(event, members)
    return None if fault is None else f"{text_of(fault[0])}: {fault[1]}"


def _quickly_parsed(value: bytes) -> Any:
    """Like `_parsed`, but if a key occurs twice, only its last value. It takes much less time, for floods of such events."""
    try:
        return msgspec.json.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        if said := _no_json(value):
            raise _MalformedError(said) from None
        is_odd = value.startswith(_BYTE_ORDER_MARK) or b"NaN" in value or b"Infinity" in value or _no_utf8(value)
        if is_odd or type(error) is not msgspec.DecodeError:
            return _parsed(value)
        raise _MalformedError(
            _refused_place(value) or f"malformed JSON: {str(error).removeprefix(_PREFIX).replace(*_UNQUOTED)}"
        ) from None


def _refused_place(value: bytes) -> str:
    """Where the value has what msgspec takes for malformed: half of a character, or a number that no double holds.

    Empty: it is malformed in another way.
    """
    try:
        steps, found = next(_refused(json.loads(value), ()), ((), ""))
    except (ValueError, RecursionError):
        return ""
    return f"{text_of(steps)}: {found}" if steps else found


def _refused(value: Any, steps: tuple[Step, ...]) -> Iterator[tuple[tuple[Step, ...], str]]:
    """The places of texts, and of objects' keys, with half of a character, and of numbers beyond a double."""
    match value:
        case str() if LONE_SURROGATE.search(value):
            yield steps, _HALF
        case float() if not _fits_a_double(value):
            yield steps, f"expected a number that fits into a double, found {in_words(value)}"
        case dict():
            for name, inner in value.items():
                yield from ((steps, _HALF),) if LONE_SURROGATE.search(name) else _refused(inner, (*steps, name))
        case list():
            for index, inner in enumerate(value):
                yield from _refused(inner, (*steps, index))


def _no_json(value: bytes) -> str:
    """What a value is that can't be JSON; empty: nothing that this function knows."""
    if not value.strip():
        return "expected a JSON object, found an empty value"
    # Each ASCII character of UTF-16 or UTF-32 has a zero byte, and JSON as UTF-8 has none.
    if value.startswith(_OTHER_MARKS) or b"\0" in value[:4]:
        return "expected UTF-8 text, found bytes of another encoding, such as UTF-16, or of another format than JSON"
    return ""


def _parsed(value: bytes) -> Any:
    """The value, with invalid UTF-8 replaced. Raises _MalformedError."""
    if value.startswith(_BYTE_ORDER_MARK):
        raise _MalformedError("expected a JSON object, found a UTF-8 byte-order mark before it: send events without it")
    hooks: dict[str, Any] = {"object_pairs_hook": _Object, "parse_int": _integer, "parse_constant": _refuse_constant}
    try:
        return json.loads(value.decode(errors="replace"), **hooks)
    except json.JSONDecodeError as error:
        raise _MalformedError(f"malformed JSON at character {error.pos + 1}: {error.msg}") from None
    except RecursionError:
        raise _MalformedError(
            "nested too deeply: expected at most about 900 objects and lists within each other. Send flatter events"
        ) from None


def _integer(text: str) -> float:
    return int(text) if len(text) <= _MOST_DIGITS else math.copysign(math.inf, -1 if text[0] == "-" else 1)


def _refuse_constant(name: str) -> Any:
    raise _MalformedError(f"malformed JSON: {name} is no JSON value: send null")


def _no_utf8(value: bytes) -> str | None:
    try:
        value.decode()
    except UnicodeDecodeError as error:
        return (
            f"expected text in UTF-8, found the byte 0x{value[error.start]:02x} as byte {error.start + 1} of the event"
        )
    return None


_Fault = tuple[tuple[Step, ...], str]
"""The steps to a value that isn't as expected, and what was expected and found."""


def _fault(value: Any, tree: AvroType) -> _Fault | None:
    """The first place where a value has another type than expected."""
    core, is_nullable = nullable(tree)
    if value is None and is_nullable:
        return None
    match kind_of(core):
        case "record" if isinstance(value, _OBJECTS):
            return _fault_in_object(value, core["fields"])
        case "array" if isinstance(value, list) and not isinstance(value, _Object):
            return _fault_in_array(value, core["items"])
        case "enum":
            expected = "" if value in core["symbols"] else "one of the enum's symbols"
        case kind:
            expected = "" if _fits(value, kind) else _EXPECTED[kind]
    return ((), f"expected {expected}, found {_found(value, kind_of(core))}") if expected else None


def _found(value: Any, kind: str) -> str:
    hint = NO_LISTS if kind == "mixed" and isinstance(value, list) and not isinstance(value, _Object) else ""
    return f"{in_words(value, quoted=kind == 'enum')}{hint}"


def _fault_in_array(array: list[Any], items: AvroType) -> _Fault | None:
    for index, item in enumerate(array):
        if (fault := _fault(item, items)) is not None:
            return (index, *fault[0]), fault[1]
    return None


def _fault_in_object(event: dict[str, Any] | _Object, members: Sequence[dict[str, Any]]) -> _Fault | None:
    types = {member["name"]: member["type"] for member in members}
    pairs = list(event.items()) if isinstance(event, dict) else event
    there = {name for name, _ in pairs}
    for member in members:
        if "default" not in member and member["name"] not in there:
            return (member["name"],), "expected a value, found none (the schema has no default for it)"
    for name, value in pairs:
        if name in types and (fault := _fault(value, types[name])) is not None:
            return (name, *fault[0]), fault[1]
    return None


def _fits(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind in ("boolean", "number", "mixed")
    is_number = isinstance(value, _NUMBERS)
    match kind:
        case "int" | "long":
            return isinstance(value, int) and -_LARGEST[kind] <= value < _LARGEST[kind]
        case "mixed":
            return isinstance(value, str) or (is_number and _fits_a_double(value))
        case "float" | "double" | "number":
            return is_number and abs(value) < (FLOAT32_LIMIT if kind == "float" else _DOUBLE_LIMIT)
        case "string" | "scalar":
            return isinstance(value, str) or (kind == "scalar" and isinstance(value, int))
    return False


def _fits_a_double(number: float) -> bool:
    return abs(number) < _DOUBLE_LIMIT  # `math.isfinite` raises OverflowError for a whole number beyond it


def in_words(value: Any, *, quoted: bool = False) -> str:
    """What a JSON value is, for messages, with the beginning of a text. `quoted`: whether a text is known to be one."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case int() | float():
            return _found_number(value)
        case str():
            return f"{'' if quoted else 'text '}{value[:_LONGEST_QUOTE]!r}"
        case dict() | _Object():
            return "an object"
    return "an array"


def _found_number(number: float) -> str:
    if not _fits_a_double(number):
        return "a number that is too large for a double"
    text = f"the number {number}"
    return text if len(text) <= _LONGEST_QUOTE else "a number of too many digits"
