"""Turns pydantic's errors about a pipeline file into problems with the line, the option and what to write."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from millstream.pipeline.errors import Problem
from millstream.pipeline.json_schema import JsonSchema, schema_at
from millstream.pipeline.yaml_places import Document
from millstream.schemas.wording import EXPECTED, IN_QUOTES, Loc, dotted, meant_value, wrong_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

_EXPECTED = {**EXPECTED, "tuple_type": "a list", "dict_type": "a mapping", "string_too_short": "text"}
_MOST_WHOLE = 2**31  # more than any option takes for which somebody may write a fraction
_MOST_HOMES = 3  # sections that have a key of this name, up to which a message names them


def problems_of(error: ValidationError, document: Document, schema: JsonSchema) -> list[Problem]:
    """Return one problem for each mistake in the error. `schema`: a schema tree of the file.

    Leaves out what only follows from a value that the document says could not be read.
    """
    problems = []
    details = error.errors(include_url=False)
    for detail in details:
        known = document.known(detail["loc"])
        if not document.is_broken(known) and not _follows(detail, details):
            problems.append(_problem(detail, known, document, schema))
    return problems


def _follows(detail: ErrorDetails, others: Sequence[ErrorDetails]) -> bool:
    """Whether a list is too short only because some of its items are wrong, which have problems of their own."""
    loc = detail["loc"]
    return detail["type"] == "too_short" and any(
        other["loc"][: len(loc)] == loc and len(other["loc"]) > len(loc) for other in others
    )


def _problem(detail: ErrorDetails, known: Loc, document: Document, schema: JsonSchema) -> Problem:
    line = document.lines[known]
    if detail["type"] == "missing":
        place = (*known, detail["loc"][-1])
        return Problem(_missing(schema_at(schema, place), str(place[-1])), line, dotted(place))
    if detail["type"] == "extra_forbidden":
        return Problem(_unknown_key(known, schema), line, dotted(known))
    text = wrong_value(detail, _EXPECTED)
    question = meant_value(detail)
    if text.endswith(IN_QUOTES):
        message = f"{text}. Remove the quotes."
    else:
        option = {**schema_at(schema, known), **_written_whole(text, detail["input"])}
        message = f"{text}.{question}" if question else _sentence(text, option, known)
    return Problem(message, line, dotted(known))


def _written_whole(text: str, found: object) -> JsonSchema:
    """For a number such as 1.0 in place of a whole number: this number as the option's example; otherwise nothing."""
    if "a whole number" in text and isinstance(found, float) and found.is_integer() and 1 <= found < _MOST_WHOLE:
        return {"examples": [int(found)]}
    return {}


def _missing(option: JsonSchema, key: str) -> str:
    if "properties" in option:
        keys = ", ".join(option.get("required", ()))
        return f"this section is missing. Write `{key}:` and under it {keys}."
    return _sentence("this option is missing", option, (key,))


def _unknown_key(loc: Loc, schema: JsonSchema) -> str:
    key = str(loc[-1])
    allowed = list(schema_at(schema, loc[:-1]).get("properties", ()))
    outer, *inner = key.split(".")
    if inner and outer in allowed:
        return f"unknown key. Write `{outer}:` and under it `{': '.join(inner)}:`."
    place = _home(key, loc, allowed, schema)
    # The name of an option elsewhere is hardly a misspelling, unless it differs by a letter.
    close = get_close_matches(key, allowed, n=1, cutoff=0.8 if place else 0.6)
    if place:
        return f"unknown key here. {place}{f' Or did you mean {close[0]}?' if close else ''}"
    said = f"Did you mean {close[0]}?" if close else f"Allowed here: {', '.join(sorted(allowed))}."
    return f"unknown key. {said}"


def _home(key: str, loc: Loc, allowed: Sequence[str], schema: JsonSchema) -> str:
    """Where a key belongs that has this name elsewhere in the file; empty: it has none, or too many."""
    if len(loc) > 1 and key in schema["properties"]:
        return "It belongs at the top level of the file."
    homes = [name for name, section in schema["properties"].items() if key in section.get("properties", ())]
    if len(homes) == 1 and len(loc) > 1 and homes[0] in allowed:
        return f"Write it into the key beside it, `{homes[0]}: {{name: NAME, {key}: ...}}`."
    if 0 < len(homes) <= _MOST_HOMES:
        return f"It belongs under {' or '.join(f'`{name}:`' for name in homes)}."
    return ""


def _sentence(text: str, option: JsonSchema, loc: Loc) -> str:
    """End the text with an example to copy, unless it already ends with advice of its own (a full stop)."""
    if text.endswith("."):
        return text
    examples = [*option.get("examples", ()), *([option["default"]] if "default" in option else [])]
    if not examples or isinstance(loc[-1], int):
        return f"{text}."
    return f"{text}. Write for example: {loc[-1]}: {yaml_text(examples[0])}"


def yaml_text(value: object) -> str:
    """Return a default or an example as it is written in the file."""
    match value:
        case bool():
            return "true" if value else "false"
        case list() | tuple():
            return f"[{', '.join(yaml_text(item) for item in value)}]"
    return str(value)
