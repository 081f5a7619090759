"""Parses conditions on events, such as `amount >= 1000` and `country in [DE, AT]`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple, cast

from pydantic import BeforeValidator, InstanceOf, WithJsonSchema

from millstream.schemas.wording import shown
from millstream.schemas.written_numbers import is_decimal, number_of

Operator = Literal["==", "!=", "<", "<=", ">", ">=", "in", "not in"]
Constant = str | float | bool

_FIELD = r"(?:\[\"(?:[^\"\\]|\\.)*\"\]|\S)+"  # a key in brackets may have blanks
_CONDITION = re.compile(rf"\s*({_FIELD})\s+(==|!=|<=|>=|<|>|not\s+in|in)\s+(.+?)\s*", re.DOTALL)
_WITHOUT_BLANKS = re.compile(r"\s*([^\s=!<>]+)\s*(==|!=|<=|>=|<|>)\s*([^\s=!<>]+)\s*")
_ASSIGNED = re.compile(r"\s*(\S+)\s*=\s*([^\s=]+)\s*")
_THERE = re.compile(r"\s*(\S+)\s+is\s+(?:not\s+)?(?:null|none)\s*", re.IGNORECASE)
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_ITEM = re.compile(r"\s*('[^']*'|\"[^\"]*\"|[^,'\"\[\]]+)\s*(?:,|$)")
_OTHER_SYNTAX = re.compile(r"[=<>&|#]|\b(and|or|AND|OR)\b")  # of other languages' conditions; texts rarely have it
_OTHER_WORDS = {"True": "true", "False": "false", "TRUE": "true", "FALSE": "false"}
_NO_JSON_NUMBER = re.compile(r"\+|-?0[0-9]")
_NOTHING = {"null", "None", "NULL", "nil"}
_MAX_WHOLE = 2.0**53  # from here on, a double may stand for several whole numbers
_EXAMPLES = "such as `amount >= 1000`, `country == DE` or `country in [DE, AT]`"


class ParsedCondition(NamedTuple):
    """One condition on a field of the event."""

    field: str  # its path
    operator: Operator
    constants: tuple[Constant, ...]  # all texts, all numbers (float) or all booleans; one, except for `in` and `not in`
    text: str  # as it is written, for messages

    @property
    def compared(self) -> tuple[str, ...] | tuple[float, ...]:
        """What values are compared with: texts or numbers. A boolean is compared as a text."""
        texts = (str(each).lower() if isinstance(each, bool) else each for each in self.constants)
        return tuple(texts)  # type: ignore[return-value]  # all texts, or all numbers


def parse_condition(text: object) -> ParsedCondition:
    """Parse a condition. Raises ValueError, which says what was expected and found."""
    match = _CONDITION.fullmatch(text) if isinstance(text, str) else None
    if match is None or not isinstance(text, str):
        raise ValueError(f"expected a condition {_EXAMPLES}, found {shown(text)}.{_meant(text)}")
    field, operator, right = match[1], cast("Operator", " ".join(match[2].split())), match[3]
    is_list = right.startswith("[") and right.endswith("]")
    if is_list != (operator in {"in", "not in"}):
        wanted = "one value" if is_list else "a list such as [DE, AT]"
        raise ValueError(f"expected {wanted} after `{operator}`, found {shown(right)}.")
    constants = _list(right) if is_list else (_constant(right),)
    kinds = {type(constant) for constant in constants}
    if len(kinds) > 1:
        raise ValueError(
            f"expected values of one type, found {shown(right)}. Write texts that look like numbers in quotes."
        )
    if operator in {"==", "in"} and "" in constants:
        raise ValueError(f"expected a text that isn't empty: an empty text counts as absent, found {shown(right)}.")
    if operator in {"<", "<=", ">", ">="} and kinds != {float}:
        raise ValueError(f"expected a number after `{operator}`, found {shown(right)}.")
    return ParsedCondition(field, operator, constants, text.strip())


def _meant(text: object) -> str:
    """What the condition probably means, with a space before it; empty: nobody can tell."""
    if not isinstance(text, str):
        return ""
    if (close := _WITHOUT_BLANKS.fullmatch(text)) is not None:
        return f" Write blanks around the operator: {' '.join(close.groups())}"
    if (close := _ASSIGNED.fullmatch(text)) is not None:
        return f" Write two equal signs: {close[1]} == {close[2]}"
    if (close := _THERE.fullmatch(text)) is not None:
        return f" For events that have the field, write {close[1]} != ''"
    return ""


def _list(text: str) -> tuple[Constant, ...]:
    inside, found = text[1:-1].strip(), []
    place = 0
    while place < len(inside):
        match = _ITEM.match(inside, place)
        if match is None:
            raise ValueError(f"expected values separated by commas, found {shown(text)}.")
        found.append(_constant(match[1].strip()))
        place = match.end()
    if not found:
        raise ValueError("expected at least one value in the list, found none.")
    return tuple(found)


def _constant(text: str) -> Constant:
    if _QUOTED.fullmatch(text):
        return text[1:-1]
    if text in {"true", "false"}:
        return text == "true"
    if (number := number_of(text)) is not None:
        if _NO_JSON_NUMBER.match(text):
            raise ValueError(
                f'expected a number without leading zeros and without a plus sign, found {shown(text)}. Write "{text}" for a '
                "text."
            )
        if abs(number) >= _MAX_WHOLE:
            raise ValueError(
                f"expected a number below 2^53, because larger ones are compared inexactly, found {shown(text)}. Write "
                f'"{text}" to compare it as a text.'
            )
        return number
    _refuse_no_text(text)
    return text


def _refuse_no_text(text: str) -> None:
    """Refuse what is hardly meant as a text. Raises ValueError."""
    if not text or any(mark in text for mark in "'\"[]"):
        raise ValueError(f"expected a text, a number, true or false, found {shown(text)}.")
    if is_decimal(text):
        raise ValueError(f'expected a number that a double holds, found {shown(text)}. Write "{text}" for a text.')
    if text in _NOTHING:
        raise ValueError(
            f"expected a value, found {shown(text)}. A field that is absent or null passes no condition; `FIELD != ''` holds for "
            f'each that is there. Write "{text}" for a text.'
        )
    if text.replace("_", "").replace(",", "").isdecimal():
        raise ValueError(f'expected a number in digits alone, found {shown(text)}. Write "{text}" for a text.')
    if text in _OTHER_WORDS:
        raise ValueError(
            f'expected true or false, found {shown(text)}. Write {_OTHER_WORDS[text]}, or "{text}" for a text.'
        )
    if _OTHER_SYNTAX.search(text):
        raise ValueError(
            f"expected one value, found {shown(text)}. Conditions that must all hold are a list of conditions. For one of "
            "several values, write `in [a, b]`. A text with such words or signs stands in quotes."
        )


def joined(conditions: Sequence[ParsedCondition]) -> str:
    """The conditions as a message has them."""
    return " and ".join(f"`{parsed.text}`" for parsed in conditions)


def _conditions(value: object) -> tuple[ParsedCondition, ...]:
    each = value if isinstance(value, tuple) else (value,)
    if not each:
        raise ValueError("expected a condition or a list of them, found an empty list.")
    return tuple(map(parse_condition, each))


Conditions = Annotated[
    tuple[InstanceOf[ParsedCondition], ...],
    BeforeValidator(_conditions),
    WithJsonSchema(
        {
            "$comment": "condition",
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}],
        }
    ),
]
