"""Says which fields of the events fill no input, with a hint for times and for lists of objects."""

from collections.abc import Collection, Iterator, Mapping

from millstream.consumers.scaffold.survey import Found

MAX_LISTED = 20


def unused(found: Mapping[str, Found], used: Collection[str]) -> Iterator[str]:
    """One line for people per field that is not in `used`, up to MAX_LISTED."""
    left = [one for path, one in found.items() if path not in used]
    for one in left[:MAX_LISTED]:
        yield f"{one.path}{_hint(one)}"
    if len(left) > MAX_LISTED:
        yield f"and {len(left) - MAX_LISTED} more"


def _hint(one: Found) -> str:
    if one.time_format:
        return f": its values look like times; as a feature: {one.as_feature}"
    if one.as_feature:
        return f": a value of each item in a list; the first one's as a feature: {one.as_feature}"
    return ""
