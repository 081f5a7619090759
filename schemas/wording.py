"""Words for error messages: places and values in YAML files, and pydantic's errors."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pydantic_core import ErrorDetails

Loc = tuple[str | int, ...]
"""A place in a file: keys, and the numbers of list items."""

EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "bool_type": "true or false",
    "float_type": "a number",
    "model_type": "a mapping",
}
"""Pydantic's error type -> the expected value."""
IN_QUOTES = " in quotes"  # ends the message about a number that is a text only because of its quotes
_DIGITS = 18  # of a text in quotes that would be a number without them: longer numbers are texts, too


def dotted(loc: Loc) -> str:
    """Return a place as text: ("input", "topics", 0) is "input.topics[0]"."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in loc)
    return text.removeprefix(".")


def shown(value: object) -> str:
    """Return a value of a YAML file for an error message: short, and on one line."""
    match value:
        case None | bool():
            return {None: "nothing", True: "true", False: "false"}[value]
        case int() | float():
            return f"the number {value}"
        case str():
            return repr(value if len(value) <= 60 else f"{value[:57]}...")
        case dict():
            return "a mapping" if value else "an empty mapping"
        case list() | tuple():
            return "a list" if value else "an empty list"
    return f"{value!r:.60}"


def shown_for(expected: str, value: object) -> str:
    """As `shown`, where `expected` was wanted. It says if only quotes keep the value from being a number."""
    is_number = isinstance(value, str) and value.isdecimal() and (value == "0" or not value.startswith("0"))
    is_quoted = "number" in expected and is_number and len(str(value)) <= _DIGITS
    return f"{shown(value)}{IN_QUOTES if is_quoted else ''}"


def first_of(entries: Sequence[str], most: int) -> str:
    """The first entries, and how many more there are."""
    more = f" and {len(entries) - most} more" if len(entries) > most else ""
    return f"{', '.join(entries[:most])}{more}"


def counted(count: int, noun: str) -> str:
    """ "1 event", "2 events", "1,000 events"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def meant(name: str, there: Collection[str]) -> str:
    """A question after the nearest of these names, with a space before it; empty: none is near."""
    other_case = [each for each in there if each.casefold() == name.casefold()]
    close = other_case or get_close_matches(name, there, n=1)
    return f" Did you mean `{close[0]}`?" if close else ""


def meant_value(detail: ErrorDetails) -> str:
    """For one of a few words that is nearly right, a question after it, with a space before it; otherwise nothing."""
    found = detail["input"]
    if detail["type"] != "literal_error" or not isinstance(found, str):
        return ""
    return meant(found, re.findall("'(.*?)'", detail["ctx"]["expected"]))


def wrong_value(detail: ErrorDetails, expected_by_type: Mapping[str, str]) -> str:
    """Return what was expected and found, without a full stop. For an error of Millstream's validators, return its text."""
    context: dict[str, Any] = detail.get("ctx", {})
    match detail["type"]:
        case "value_error":  # raised by one of Millstream's validators, with a full text
            return str(context["error"])
        case "literal_error":
            expected = context["expected"].replace("'", "")
        case "greater_than_equal":
            expected = f"at least {context['ge']}"
        case "greater_than":
            expected = f"more than {context['gt']:g}"
        case "less_than":
            expected = f"less than {context['lt']:g}"
        case "less_than_equal":
            most = context["le"]
            expected = f"at most {most if isinstance(most, int) else format(most, 'g')}"
        case "too_short" if "too_short" not in expected_by_type:
            return f"expected at least {counted(context['min_length'], 'item')}, found {context['actual_length']}"
        case kind:
            expected = expected_by_type.get(kind, f"another value ({detail['msg']})")
    return f"expected {expected}, found {shown_for(expected, detail['input'])}"
