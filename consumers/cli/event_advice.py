"""Says what to do about events that lack a field, or whose values have other types than the mapping reads."""

import re
from collections.abc import Mapping
from typing import Any

from millstream.pipeline.pipeline import Pipeline
from millstream.schemas.errors import BadPathError
from millstream.schemas.paths import parse_path, text_of, value_at
from millstream.schemas.wording import meant

_MISMATCH = re.compile(r"(?P<path>.+?): expected (?P<expected>.+), found (?P<found>.+)")
_ABSENT = re.compile(r"field `(?P<path>.+?)` is absent or null, but .+")
_MAX_NAMES = 12  # of fields that are listed
_NUMBERS = ("a number", "an integer", "true or false")
_SINGLE = ("text", *_NUMBERS)


def advice_on(pipeline: Pipeline, reason: str, error: str, event: object) -> str:
    """What to do about a rejected event; empty if its message says all.

    Args:
        pipeline: whose event it is.
        reason: why the event was rejected.
        error: the rejection's message.
        event: as an object; anything else if it isn't known as one.
    """
    if reason == "unfit" and (absent := _ABSENT.fullmatch(error)):
        there = _fields_there(absent["path"], event)
        return (
            f"{absent['path']}: {there}`missing:` beside the field replaces an absent or null value "
            "(`millstream docs models`)."
        )
    return _on_type(pipeline, reason, error)


def _fields_there(path: str, event: object) -> str:
    """Which fields the event has where the path leads nowhere, with a space behind it; empty if it leads to a null."""
    try:
        steps = parse_path(path).steps
    except BadPathError:  # of a look-up's column
        return ""
    place: Any = event
    for depth, step in enumerate(steps):
        if isinstance(step, str) and isinstance(place, Mapping) and place and step not in place:
            parent = f"`{text_of(steps[:depth])}`" if depth else "the event"
            listed = ", ".join([*map(str, place)][:_MAX_NAMES]) + (", ..." if len(place) > _MAX_NAMES else "")
            question = meant(step, [*place])
            return (
                f"{parent} has no `{step}`. It has the fields {listed}.{question} If the field was renamed, write its new "
                "name in the mapping. "
            )
        place = value_at(place, [step])
    return ""


def _on_type(pipeline: Pipeline, reason: str, error: str) -> str:
    """What to do about a value of another type; empty if the message says all."""
    # With a schema, the schema says the types, not the options of a field.
    is_plain = pipeline.input.format == "json" and pipeline.input.schema_name is None
    match = _MISMATCH.fullmatch(error) if is_plain and reason == "undecodable" else None
    if match is None or "event_time_format" in error:  # then the message has an advice of its own
        return ""
    # The same advice for all items of a list.
    path, expected, found = re.sub(r"\[\d+\]", "[]", match["path"]), match["expected"], match["found"]
    if found == "an array" and expected.startswith(_SINGLE):
        return (
            f"{path}: `{path}[]` names the items of a list, and `{path}[0]` the first (`millstream docs models#paths`)."
        )
    if found == "an object" and expected.startswith(_SINGLE):
        return f"{path}: a path must go on to a value in the object, such as `{path}.name` (`millstream docs models#paths`)."
    if found == "text" and expected.startswith(_NUMBERS):
        return (
            f"{path}: `type: text` beside the field takes numbers written as text, and `type: any` also numbers "
            "(`millstream docs models#casts`)."
        )
    if expected.startswith("text") and found.startswith(("the number", "true", "false")):
        return f"{path}: `type: any` beside the field takes texts and numbers (`millstream docs models#casts`)."
    return ""
