"""Says what to do about events that lack a field, or whose values have other types than the mapping reads."""

import re
from collections.abc import Mapping
from typing import Any

from millstream.inference.conversions import Conversion
from millstream.inference.signature import Signature
from millstream.inference.times import Time
from millstream.inference.vocabulary import Vocabulary
from millstream.pipeline.pipeline import Pipeline
from millstream.schemas.errors import BadPathError
from millstream.schemas.paths import parse_path, text_of, value_at
from millstream.schemas.wording import meant

_MISMATCH = re.compile(r"(?P<path>.+?): expected (?P<expected>.+), found (?P<found>.+)")
_INDEX = re.compile(r"\[-?\d+\]")
_ABSENT = re.compile(r"field `(?P<path>.+?)` is absent or null, but .+")
_MAX_NAMES = 12  # of fields that are listed
_NUMBERS = ("a number", "an integer", "true or false")
_SINGLE = ("text", *_NUMBERS)
_ONE_FORM = (
    "a time has one form in all events: text (`time: iso8601`) or a number (`time: seconds`, `milliseconds` or `microseconds`). "
    "No mapping takes both. If all events have the other form, change `time`; otherwise let the producer send one "
    "(`millstream docs models#times`)."
)
_IF_TIME = " It can't stand beside `time`: a time has one form in all events (`millstream docs models#times`)."


def advice_on(pipeline: Pipeline, signature: Signature | None, reason: str, error: str, event: object) -> str:
    """What to do about a rejected event; empty if its message says all.

    Args:
        pipeline: whose event it is.
        signature: the model's, which says how its fields are read; None: the model isn't loaded.
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
    return _on_type(pipeline, signature, reason, error)


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
                "name in the mapping (`millstream docs models#a-field-that-is-renamed`). "
            )
        place = value_at(place, [step])
    return ""


def _on_type(pipeline: Pipeline, signature: Signature | None, reason: str, error: str) -> str:
    """What to do about a value of another type; empty if the message says all."""
    # With a schema, the schema says the types, not the options of a field.
    is_plain = pipeline.input.format == "json" and pipeline.input.schema_name is None
    match = _MISMATCH.fullmatch(error) if is_plain and reason == "undecodable" else None
    if match is None or "event_time_format" in error:  # then the message has an advice of its own
        return ""
    path, expected, found = _of_items(match["path"]), match["expected"], match["found"]
    if advice := _on_nesting(path, expected, found):
        return advice
    if found == "text" and expected.startswith(_NUMBERS):
        return _on_mixed(pipeline, signature, path) or (
            f"{path}: `type: text` beside the field takes numbers written as text, and `type: any` also numbers "
            f"(`millstream docs models#casts`).{_IF_TIME if signature is None else ''}"
        )
    if expected.startswith("text") and found.startswith(("the number", "true", "false")):
        return _on_mixed(pipeline, signature, path) or (
            f"{path}: `type: any` beside the field takes texts and numbers (`millstream docs models#casts`)."
            f"{_IF_TIME if signature is None else ''}"
        )
    return ""


def _of_items(path: str) -> str:
    """The path to all items, for the same advice on each item of a list."""
    return _INDEX.sub("[]", path)


def _on_mixed(pipeline: Pipeline, signature: Signature | None, path: str) -> str:
    """What to do about a field of texts and numbers where the option `type` can't help; empty: it can."""
    if signature is None:
        return ""
    uses = [
        conversion
        for entry in signature.inputs
        for field, conversion in entry.converted_fields
        if _of_items(field) == path
    ]
    if not uses and path in (pipeline.input.event_id, pipeline.input.event_time):
        return f"{path}: the option names no type. Let the producer send one that it takes, or name another field."
    return next(filter(None, (_without_type(path, use) for use in uses)), "")


def _without_type(path: str, use: Conversion) -> str:
    """As `_on_mixed`, for one use of the field."""
    if isinstance(time := use.converter, Time):
        also = ""
        if (time.format, time.part) == ("seconds", "epoch"):
            also = " For numbers of seconds, also written as text, write `type: any` in place of `time`."
        return f"{path}: {_ONE_FORM}{also}"
    if isinstance(use.converter, Vocabulary):
        return f"{path}: a vocabulary takes texts and whole numbers only. Let the producer send these."
    if use.splitter is not None:
        return f"{path}: a tokenizer takes texts only. Let the producer send text."
    return ""


def _on_nesting(path: str, expected: str, found: str) -> str:
    """What to do about a list or an object where a path goes on or ends otherwise; empty for other values."""
    page = "(`millstream docs models#paths`)"
    if found == "an array" and expected.startswith(_SINGLE):
        return f"{path}: `{path}[]` names the items of a list, and `{path}[0]` the first {page}."
    if found == "an array" and expected == "an object":
        return (
            f"{path}: a list needs an index in the path: `{path}[0].name` is a value of the first item, and `{path}[].name` "
            f"that of all items {page}."
        )
    if found == "an object" and expected.startswith(_SINGLE):
        return f"{path}: a path must go on to a value in the object, such as `{path}.name` {page}."
    return ""
