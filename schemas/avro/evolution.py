"""Finds what Avro's schema resolution does silently to wanted fields: it takes defaults, and reads times in another unit.

Resolution compares no logical types. It would read microseconds as if they were milliseconds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from millstream.schemas.avro.types import (
    NO_DEFAULT,
    Field,
    kind_of,
    logical_tree,
    map_values,
    nullable,
    time_type,
    title,
)
from millstream.schemas.errors import Unreadable
from millstream.schemas.paths import Every, Step, text_of
from millstream.schemas.store import AvroType, Schema

_Steps = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class _Place:
    """A wanted field, item or map entry, with its types in both schemas."""

    steps: _Steps
    written: AvroType | None  # None: the writer lacks the field
    read: AvroType
    default: Any = NO_DEFAULT  # of a field


def silent_defaults(writer: Schema, reader: Schema, fields: Sequence[Field]) -> dict[str, Any]:
    """The wanted fields that the writer schema lacks, with the reader's defaults, but for null, which counts as missing.

    Args:
        writer: which the records were written with.
        reader: which the events are read with.
        fields: its wanted fields.

    Returns:
        Path -> default.

    Raises:
        Unreadable: reason schema_incompatible; a time has another unit in the writer schema, or is local in only one of both.
    """
    if writer.definition == reader.definition:
        return {}
    found: dict[str, Any] = {}
    for place in _places(fields, logical_tree(writer), logical_tree(reader)):
        if place.written is None:
            if place.default is not None and place.default is not NO_DEFAULT:
                found[text_of(place.steps)] = place.default
            continue
        for theirs, ours in _times(place.written, place.read):
            if ours and theirs != ours:
                raise Unreadable(
                    "schema_incompatible",
                    f"{title(writer)}, which the record was written with, has {theirs} at `{text_of(place.steps)}`, where "
                    f"{title(reader)} wants {ours}. Let the producer write {ours}; or change the reader schema, restart the "
                    f"workers, and replay the dead letters",
                )
    return found


def _places(fields: Sequence[Field], written: AvroType, read: AvroType) -> Iterator[_Place]:
    entries = [
        {"name": field.name, "type": field.type, "aliases": field.aliases, "default": field.default} for field in fields
    ]
    return _inside({"type": "record", "fields": entries}, written, read, ())


def _inside(wanted: AvroType, written: AvroType, read: AvroType, steps: _Steps) -> Iterator[_Place]:
    """The places within a type. `wanted`: the reader's type with only the wanted parts."""
    (wanted, _), (written, _), (read, _) = nullable(wanted), nullable(written), nullable(read)
    if isinstance(written, list):
        for branch in written:
            if _resolves(branch, read):
                yield from _inside(wanted, branch, read, steps)
        return
    values, kinds = map_values(wanted), (kind_of(written), kind_of(read))
    if kinds == ("map", "map") and values is not None:
        for entry in wanted["fields"]:
            yield from _at(values, written["values"], read["values"], (*steps, entry["name"]))
    elif kinds == ("array", "array"):
        yield from _at(wanted["items"], written["items"], read["items"], (*steps, Every.ITEM))
    elif kinds == ("record", "record"):
        theirs, ours = ({entry["name"]: entry["type"] for entry in tree["fields"]} for tree in (written, read))
        for entry in wanted["fields"]:
            inner, own = (*steps, entry["name"]), ours[entry["name"]]
            name = next((name for name in (entry["name"], *entry.get("aliases", ())) if name in theirs), None)
            if name is None:
                yield _Place(inner, None, own, entry.get("default", NO_DEFAULT))
            else:
                yield from _at(entry["type"], theirs[name], own, inner)


def _at(wanted: AvroType, written: AvroType, read: AvroType, steps: _Steps) -> Iterator[_Place]:
    """A place, and those within it."""
    yield _Place(steps, written, read)
    yield from _inside(wanted, written, read, steps)


def _resolves(branch: AvroType, read: AvroType) -> bool:
    """Whether values of a branch of the writer's union are read as a type that is no union. A record must have its name."""
    if kind_of(branch) != kind_of(read):
        return False
    if kind_of(read) != "record":
        return True
    own, *names = (str(name).rpartition(".")[2] for name in (branch["name"], read["name"], *read.get("aliases", ())))
    return own in names


def _times(written: AvroType, read: AvroType) -> Iterator[tuple[str, str]]:
    """Each type of times that the writer may write, and that which its numbers are read as; empty: numbers without a unit."""
    ours = {kind_of(branch): time_type(branch) for branch in _branches(read)}
    for branch in _branches(written):
        if theirs := time_type(branch):
            yield theirs, ours.get(kind_of(branch), ours.get("long", ""))  # a long takes an int, too


def _branches(tree: AvroType) -> list[AvroType]:
    return tree if isinstance(tree, list) else [tree]
