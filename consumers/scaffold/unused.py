"""Says which fields of the events fill no input, with the options that make features of them."""

import json
from collections.abc import Collection, Iterator, Mapping

from millstream.consumers.scaffold.survey import Found

MAX_LISTED = 20


def unused(found: Mapping[str, Found], used: Collection[str], events: int) -> Iterator[str]:
    """One line for people per field that is not in `used`, up to MAX_LISTED."""
    left = [one for path, one in found.items() if path not in used and not _is_empty_parent(one, found)]
    for one in left[:MAX_LISTED]:
        hints = "; ".join(_hints(one, events))
        yield f"{one.path}: {hints}" if hints else one.path
    if len(left) > MAX_LISTED:
        yield f"and {len(left) - MAX_LISTED} more"


def _is_empty_parent(one: Found, found: Mapping[str, Found]) -> bool:
    """Whether it is the path of a list or an object that some events have as null: the paths in it are listed, and tell more."""
    return not one.events and any(path.startswith((f"{one.path}.", f"{one.path}[]")) for path in found)


def _hints(one: Found, events: int) -> Iterator[str]:
    if one.time_format:
        yield f"its values look like times; as a feature: {one.as_feature}"
    elif one.as_feature:
        yield f"a value of each item in a list; the first one's as a feature: {one.as_feature}"
    elif one.is_numeric_text:
        yield f"text with numbers; as a feature: {{field: {json.dumps(one.path)}, type: text}}"
    if not one.events:
        yield "no event has a value there"
    elif one.events < events:
        yield f"{events - one.events} of {events} events lack it, so a feature needs `missing:`"
