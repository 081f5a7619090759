"""Casts of a field's values: text to numbers and booleans, numbers to whole numbers and booleans, booleans to numbers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from millstream.inference.conversions import Converted, as_numbers, as_texts, without_nulls
from millstream.schemas.arrays import Ints, Mask
from millstream.schemas.column import Column, NumberColumn, StringColumn, spread
from millstream.schemas.packed import Packed

EventType = Literal["text", "number", "int", "boolean", "any"]
"""The values of the option `type`."""

LEAVES: dict[EventType, str] = {
    "text": "string",
    "int": "int64",
    "number": "float64",
    "boolean": "boolean",
    "any": "mixed",
}
"""Type that an option states -> type in JSON without a schema."""
WORDS = {
    "scalar": "a text or a whole number",
    "string": "a text",
    "int64": "a whole number",
    "float64": "a number",
    "boolean": "true or false",
    "mixed": "a text, a number, or true or false (type `any`)",
}
"""Type in JSON without a schema -> what events have there, in words."""
_COLUMNS: dict[EventType, tuple[str, ...]] = {
    "text": ("string",),
    "number": ("int32", "int64", "float32", "float64"),
    "int": ("int32", "int64"),
    "boolean": ("boolean",),
    "any": ("string", "int32", "int64", "float32", "float64", "boolean", "mixed"),
}
_AS_JSON = "(as in JSON: no leading zeros, no plus sign)"
_AS_DOUBLE = "(as in JSON: no leading zeros, no plus sign, and not too large for a double)"
_WHOLE_DOUBLE = (
    "a whole number between -2^53 and 2^53: not all larger ones are doubles (in JSON, `type: int` takes them)"
)
_EXPECTED = {
    ("any", "number"): f"a number, true or false, or text with a number, such as 33.5 {_AS_DOUBLE}",
    ("any", "int"): (
        "a whole number of 64 bits (with a decimal point or an exponent: between -2^53 and 2^53, because not all larger ones are "
        f"doubles), true or false, or text with a whole number, such as 33 {_AS_JSON}"
    ),
    ("any", "boolean"): "true, false, 1 or 0, also as text",
    ("any", "text"): "a text, a number, or true or false",
    ("text", "number"): f"text with a number, such as 33.5 {_AS_DOUBLE}",
    ("text", "int"): f"text with a whole number of 64 bits, such as 33 {_AS_JSON}",
    ("text", "boolean"): "one of the texts true, false, 1 and 0",
    ("number", "int"): _WHOLE_DOUBLE,
    ("number", "boolean"): "0 or 1",
    ("int", "boolean"): "0 or 1",
}
_BOOLEANS = {b"true": 1, b"1": 1, b"false": 0, b"0": 0}
_BITS = {b"true": b"1", b"false": b"0"}
_INT64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_EXACT_END = 2.0**53  # from here on, a double may stand for several whole numbers


@dataclass(frozen=True, slots=True)
class Cast:
    """Casts values of one type to another. Without such a change, it only states the type that the event has."""

    of: EventType  # the event's
    to: EventType  # the tensor's

    @property
    def leaf(self) -> str:
        """See Reader."""
        return LEAVES[self.of]

    @property
    def takes(self) -> tuple[str, ...]:
        """See Reader."""
        return ("string", "mixed") if (self.of, self.to) == ("any", "text") else _COLUMNS[self.of]

    @property
    def expected(self) -> str:
        """See Reader."""
        return _EXPECTED.get((self.of, self.to), self.of)

    def convert(self, column: Column, event_times: Callable[[], Ints]) -> Converted:
        """See Converter."""
        if self.of == "any":
            return self._of_what_it_has(column, event_times)
        if self.of == "text" and self.to != "text":
            texts = as_texts(column)
            values, wrong = _FROM_TEXT[self.to](without_nulls(texts.packed, texts.valid))
            wrong = None if wrong is None else spread(wrong, texts.valid).astype(np.bool_, copy=False)
            return Converted(NumberColumn(spread(values, texts.valid), texts.valid), wrong)
        if self.of == self.to or (self.of, self.to) == ("int", "number"):
            return Converted(column, None)
        numbers = as_numbers(column)
        if self.of == "boolean":
            return Converted(NumberColumn(numbers.values.astype(np.int64), numbers.valid), None)
        if self.to == "boolean":
            return _fitting(numbers, _is_bit(numbers.values), np.bool_)
        # What events have was read as a double.
        return _fitting(numbers, _is_whole(numbers.values), np.int64)

    def _of_what_it_has(self, column: Column, event_times: Callable[[], Ints]) -> Converted:
        """Convert values of any type. Texts may be those of numbers and booleans."""
        if isinstance(column, StringColumn):
            if self.to in ("number", "int"):
                column = replace(column, packed=_with_bits(column.packed))
            return Cast("text", self.to).convert(column, event_times)
        numbers = as_numbers(column)
        kind = numbers.values.dtype.kind
        of: EventType = "boolean" if kind == "b" else "int" if kind == "i" else "number"
        return Cast(of, self.to).convert(column, event_times)


def _fitting(numbers: NumberColumn, fits: Mask, dtype: type[np.generic]) -> Converted:
    """The numbers as this type, and which of them don't fit it."""
    values = np.where(fits, numbers.values, 0).astype(dtype)
    wrong = ~fits if numbers.valid is None else ~fits & numbers.valid
    return Converted(NumberColumn(values, numbers.valid), wrong if wrong.any() else None)


def _with_bits(texts: Packed) -> Packed:
    """The texts, with 1 and 0 in place of true and false."""
    if not np.isin(texts.lengths, (4, 5)).any():
        return texts
    return Packed.of([_BITS.get(text, text) for text in texts])


def _is_bit(values: npt.NDArray[Any]) -> Mask:
    is_bit: Mask = (values == 0) | (values == 1)
    return is_bit


def _is_whole(values: npt.NDArray[Any]) -> Mask:
    if values.dtype.kind == "i":
        return np.ones(len(values), np.bool_)
    is_whole: Mask = (np.floor(values) == values) & (np.abs(values) < _EXACT_END)
    return is_whole


def _booleans(texts: Packed) -> tuple[npt.NDArray[Any], Mask | None]:
    found = np.fromiter(map(_BOOLEANS.get, texts, repeat(-1)), np.int8, len(texts))
    wrong = found < 0
    return found > 0, wrong if wrong.any() else None


def _numbers(texts: Packed, kind: Any, dtype: type[np.generic]) -> tuple[npt.NDArray[Any], Mask | None]:
    """The number in each text, as JSON writes numbers, and which texts are none."""
    # Parsing all as one JSON array takes a tenth of the time. Only texts such as `1,2` can change the count.
    try:
        numbers: Sequence[Any] = msgspec.json.decode(b"[%b]" % b",".join(texts), type=list[kind])
        if len(numbers) == len(texts):
            return np.array(numbers, dtype), None
    except msgspec.MsgspecError:
        pass
    each = [_number(text, kind) for text in texts]
    wrong = np.fromiter((number is None for number in each), np.bool_, len(each))
    return np.array([number or 0 for number in each], dtype), wrong if wrong.any() else None


def _number(text: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError:
        return None


_FROM_TEXT: dict[str, Callable[[Packed], tuple[npt.NDArray[Any], Mask | None]]] = {
    "number": lambda texts: _numbers(texts, float, np.float64),
    "int": lambda texts: _numbers(texts, _INT64, np.int64),
    "boolean": _booleans,
}
