"""The text of a value that may be a text, a number or a boolean. json_columns.c writes the same texts."""

import json
import math

_EXACT_END = 2.0**53  # from here on, a double may stand for several whole numbers
_INT64_END = 2.0**63
_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}  # no cast takes these; JSON has no such numbers


def text_of_value(value: str | float | bool) -> str:
    """The text. It has all digits of a number. A number without a fraction is written as a whole number.

    A double of 2^53 or more keeps its point. So no cast takes it for the whole number that the event had.

    Raises TypeError for a value of another type.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return _of_integer(value)
    if not isinstance(value, float):
        raise TypeError(f"expected a text, a number or a boolean, found {type(value).__name__}")
    return _of_real(value) if math.isfinite(value) else _NOT_FINITE[str(value)]


def is_of_other_type(text: str) -> bool:
    """Whether `text_of_value` also returns this text for a number or a boolean."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, int | float) and text_of_value(value) == text


def _of_integer(value: int) -> str:
    if -(2**63) <= value < 2**64:
        return str(value)
    try:
        return _of_real(float(value))  # yyjson makes a double of it
    except OverflowError:
        return "1e999" if value > 0 else "-1e999"  # no cast takes it


def _of_real(value: float) -> str:
    if value.is_integer() and abs(value) < _INT64_END:
        return str(int(value)) if abs(value) < _EXACT_END else f"{value:.1f}"
    texts = (f"{value:.{digits}g}" for digits in (15, 16, 17))
    return next(text for text in texts if float(text) == value)
