"""Says which fields of the events fill no input, with a hint for times and for lists of objects."""

from collections.abc import Collection, Iterator, Mapping

from millstream.consumers.scaffold.survey import Found

MAX_LISTED = 20


def unused(found: Mapping[str, Found], used: Collection[str]) -> Iterator[str]:
    """One line for people per field that is not in `used`, up to MAX_LISTED."""
    left = [one for path, one in found.items() if path not in used and not _is_empty_parent(one, found)]
    for one in left[:MAX_LISTED]:
        yield f"{one.path}{_hint(one)}"
    if len(left) > MAX_LISTED:
        yield f"and {len(left) - MAX_LISTED} more"


def _is_empty_parent(one: Found, found: Mapping[str, Found]) -> bool:
    """Whether it is the path of a list or an object that some events have as null: the paths in it are listed, and tell more."""
    return not one.events and any(path.startswith((f"{one.path}.", f"{one.path}[]")) for path in found)


def _hint(one: Found) -> str:
    if one.time_format:
        return f": its values look like times; as a feature: {one.as_feature}"
    if one.as_feature:
        return f": a value of each item in a list; the first one's as a feature: {one.as_feature}"
    return ""
