"""Makes a schema for JSON without one, from the paths that are wanted and the types of their values.

Everything in it may be null or absent. Its types are those of Avro, `scalar` (a text, or an integer as its decimal text),
`number` (a number, or a boolean as 1 or 0) and `mixed` (a text, a number or a boolean, as its text).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from millstream.schemas.avro.types import NO_DEFAULT, Field, dtype_of
from millstream.schemas.avro.wanted import Parts, Wanted, dtype_at
from millstream.schemas.errors import ContradictingPaths
from millstream.schemas.paths import Every, Path, Step, parse_path, place_of
from millstream.schemas.store import AvroType

TYPES = {
    "boolean": "boolean",
    "int64": "long",
    "float64": "double",
    "string": "string",
    "scalar": "scalar",
    "number": "number",
    "mixed": "mixed",
}
"""Type that a path may have -> Avro type."""


def columns_of_types(types: Mapping[str, str]) -> Wanted:
    """The columns of these paths (path -> a key of TYPES; for a path with `[]`, the type of its items).

    Raises BadPathError for a path that is malformed, and ContradictingPaths for paths that contradict each other.
    """
    paths = [parse_path(text) for text in types]
    shapes = _shapes(paths, types)
    event = _record(Parts.of(paths), (), shapes)
    fields = [
        Field(entry["name"], entry["type"], dtype_of(entry["type"]), entry.get("default", NO_DEFAULT), ())
        for entry in event["fields"]
    ]
    return Wanted.of(paths, fields, {path.text: dtype_at(event, path, "the event") for path in paths})


_CONTAINERS = {"object": "an object", "array": "a list"}
_WORDS = {
    "boolean": "`type: boolean`",
    "int64": "`type: int`",
    "float64": "`type: number`",
    "string": "`type: text`",
    "scalar": "a text or a whole number",
    "number": "a number, or true or false",
    "mixed": "`type: any`",
}
"""What a place of single values has, in the words of config.yaml where it has one."""

_Place = tuple[Step, ...]
"""The steps to a value, with `[]` in place of indices: all items of an array have one type."""


def _shapes(paths: list[Path], types: Mapping[str, str]) -> dict[_Place, str]:
    """What the value at each place is: `object`, `array`, or a key of TYPES. Raises ContradictingPaths if two paths disagree."""
    shapes: dict[_Place, tuple[str, Path]] = {}
    for path in paths:
        for place, shape in _places(path, types[path.text]):
            known, other = shapes.setdefault(place, (shape, path))
            if known != shape:
                raise _contradiction(other, known, path, shape)
    return {place: shape for place, (shape, _) in shapes.items()}


def _contradiction(first: Path, of_first: str, second: Path, of_second: str) -> ContradictingPaths:
    """The error for two paths that want different values at one place."""
    place, advice = "at the same place", "Correct one of the paths."
    # The types of fields that may have `type`, or a vocabulary. Without an index, the paths are two spellings of one place.
    may_have_type = {of_first, of_second} <= {"boolean", "int64", "float64", "string", "scalar", "mixed"}
    if may_have_type and any(isinstance(step, int) for step in (*first.steps, *second.steps)):
        place = "for all items of a list"
        changed = [path.text for path, shape in ((first, of_first), (second, of_second)) if shape != "mixed"]
        advice = f"Write `type: any` beside {' and '.join(f'`{path}`' for path in changed)}."
    if {of_first, of_second} & {"object", "array"}:  # a path without `type` beside it may be meant
        words = " and ".join(_CONTAINERS.get(shape, "a single value") for shape in (of_first, of_second))
    else:
        words = f"{_WORDS[of_first]} and {_WORDS[of_second]}"
    return ContradictingPaths(
        f"paths `{first.text}` and `{second.text}`: expected one type of value {place}, found {words}. {advice}",
        first.text if of_second == "mixed" else second.text,
    )


def _places(path: Path, leaf: str) -> Iterator[tuple[_Place, str]]:
    steps = place_of(path.steps)
    for count in range(1, len(steps)):
        yield steps[:count], "object" if isinstance(steps[count], str) else "array"
    yield steps, leaf


def _type(parts: Parts, place: _Place, shapes: Mapping[_Place, str]) -> AvroType:
    match shapes[place]:
        case "object":
            return ["null", _record(parts, place, shapes)]
        case "array":
            assert parts.items is not None
            return ["null", {"type": "array", "items": _type(parts.items, (*place, Every.ITEM), shapes)}]
        case leaf:
            return ["null", TYPES[leaf]]


def _record(parts: Parts, place: _Place, shapes: Mapping[_Place, str]) -> dict[str, Any]:
    fields = [
        {"name": name, "type": _type(part, (*place, name), shapes), "default": None}
        for name, part in parts.members.items()
    ]
    return {"type": "record", "name": "Object", "fields": fields}
