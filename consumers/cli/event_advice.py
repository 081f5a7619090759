"""Says what to do about events whose values have other types than the mapping reads, in JSON without a schema."""

import re

from millstream.pipeline.pipeline import Pipeline

_MISMATCH = re.compile(r"(?P<path>.+?): expected (?P<expected>.+), found (?P<found>.+)")
_NUMBERS = ("a number", "an integer", "true or false")
_SINGLE = ("text", *_NUMBERS)


def advice_on(pipeline: Pipeline, reason: str, error: str) -> str:
    """What to do about a rejected event; empty if its message says all.

    Args:
        pipeline: whose event it is.
        reason: why the event was rejected.
        error: the rejection's message.
    """
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
