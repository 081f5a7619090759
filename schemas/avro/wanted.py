"""Finds the parts of events that paths want: a schema with only these parts, and the columns of the paths.

The decoders read only the wanted parts. `Wanted.decoded` then takes each path's column out of the columns of the fields.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.schemas.avro.types import (
    MAP_VALUES,
    Field,
    dtype_of,
    field_of,
    kind_of,
    nullable,
    record_tree,
    title,
)
from millstream.schemas.decoded import Decoded, Part
from millstream.schemas.dtypes import Dtype, ListOf
from millstream.schemas.errors import BadFieldError, SchemaUnavailable
from millstream.schemas.extraction import column_at
from millstream.schemas.packed import Packed
from millstream.schemas.paths import Every, Path, Step, parse_path, text_of
from millstream.schemas.store import AvroType, Schema
from millstream.schemas.table import Table

PIECE_CELLS = 1 << 23  # cells that the events of a piece may need: 9 bytes each, for a number and whether it is null


@dataclass(frozen=True, slots=True)
class Wanted:
    """The columns that are wanted of events."""

    paths: Sequence[Path]  # of the columns, in order
    fields: list[Field]  # the top-level fields, with only the parts that the paths need
    columns: Mapping[str, Dtype]  # path -> type
    is_plain: bool  # whether the paths are just the names of the fields
    # How many paths lead into items of arrays. An item takes a cell in each of their columns, even an empty one.
    cells_per_item: int

    @classmethod
    def of(cls, paths: Sequence[Path], fields: list[Field], columns: Mapping[str, Dtype]) -> Wanted:
        """See the attributes."""
        is_plain = [path.text for path in paths] == [field.name for field in fields]
        return cls(paths, fields, columns, is_plain, sum(map(_leads_into_items, paths)))

    def in_pieces(self, values: Packed, decode: Callable[[Packed], Decoded]) -> Decoded:
        """Decode the values, and take the columns of the paths. `decode` gives the columns of the fields.

        If paths lead into arrays, it decodes some values at a time: their columns may take many times the memory of the values,
        and those of the paths may take little.
        """
        if not self.cells_per_item or not len(values):
            return self.decoded(decode(values))
        needed = (self.cells_per_item * values.lengths).cumsum() // PIECE_CELLS
        if needed[0] == needed[-1]:
            return self.decoded(decode(values))
        cuts = (np.flatnonzero(np.diff(needed)) + 1).tolist()
        return Decoded.concat([self._piece(values, *bounds, decode) for bounds in pairwise([0, *cuts, len(values)])])

    def _piece(
        self, values: Packed, start: int, stop: int, decode: Callable[[Packed], Decoded]
    ) -> tuple[npt.NDArray[np.int64], Decoded]:
        try:
            return np.arange(start, stop), self.decoded(decode(values[start:stop]))
        except SchemaUnavailable as error:
            error.row += start
            raise

    def table(self, fields: Table) -> Table:
        """The columns of the paths, from the columns of the fields."""
        return Table({path.text: column_at(fields[path.field], path.steps[1:]) for path in self.paths})

    def decoded(self, fields: Decoded) -> Decoded:
        """Like `table`, for all parts of decoded records."""
        if self.is_plain:
            return fields
        return Decoded([Part(self.table(part.table), part.rows) for part in fields.parts], fields.bad)


@dataclass(slots=True)
class Parts:
    """The wanted parts of a value."""

    is_whole: bool = False  # the value itself is wanted
    members: dict[str, Parts] = field(default_factory=dict)  # of a record or a map
    items: Parts | None = None  # of an array's items

    @classmethod
    def of(cls, paths: Iterable[Path]) -> Parts:
        """The parts of an event that these paths need."""
        event = cls()
        for path in paths:
            part = event
            for step in path.steps:
                part = part.inside(step)
            part.is_whole = True
        return event

    def inside(self, step: Step) -> Parts:
        """The parts of the value at this step, which are added if there are none."""
        if isinstance(step, str):
            return self.members.setdefault(step, Parts())
        self.items = self.items or Parts()
        return self.items

    def add(self, other: Parts) -> None:
        """Want the other parts, too."""
        self.is_whole |= other.is_whole
        for name, part in other.members.items():
            self.inside(name).add(part)
        if other.items is not None:
            self.inside(Every.ITEM).add(other.items)


def _leads_into_items(path: Path) -> bool:
    """Whether the path wants a part of an array's items."""
    places = [place for place, step in enumerate(path.steps) if not isinstance(step, str)]
    return bool(places) and places[0] < len(path.steps) - 1


def wanted_columns(reader: Schema, paths: Sequence[str]) -> Wanted:
    """Find the paths in a schema.

    Raises:
        BadFieldError: a path isn't in the schema, or there can't be a column of its values.
    """
    tree = record_tree(reader)
    parsed = [parse_path(text) for text in dict.fromkeys(paths)]
    columns = {path.text: dtype_at(tree, path, title(reader)) for path in parsed}
    parts = Parts.of(parsed)
    by_name = {entry["name"]: entry for entry in tree["fields"]}
    fields = [field_of(_member(by_name[name], part, by_name), title(reader)) for name, part in parts.members.items()]
    return Wanted.of(parsed, fields, columns)


def type_at(tree: AvroType, path: Path, of: str) -> AvroType:
    """The type at a path, without null if it may be null. `of`: the schema's title. Raises BadFieldError if there is none."""
    for place, step in enumerate(path.steps):
        tree = _type_inside(tree, step, path.steps[:place], path, of)
    return nullable(tree)[0]


def dtype_at(tree: AvroType, path: Path, of: str) -> Dtype:
    """The type of a path's column. `of`: the title of the schema. Raises BadFieldError if there can't be such a column."""
    lists = 0
    for place, step in enumerate(path.steps):
        tree = _type_inside(tree, step, path.steps[:place], path, of)
        lists += step is Every.ITEM
    try:
        dtype = dtype_of(tree)
    except BadFieldError as error:
        raise BadFieldError(
            f"field '{path.text}' of {of}: {error}: wanted fields are numbers, booleans, strings, bytes, enums, "
            f"arrays and records of these, a union of one of these with null, or a union of numbers, booleans, strings "
            f"and enums{_advice(tree, path)}"
        ) from error
    for _ in range(lists):
        dtype = ListOf(dtype)
    return dtype


def _advice(tree: AvroType, path: Path) -> str:
    return f": name a key of the map, such as `{path.text}.key`" if kind_of(nullable(tree)[0]) == "map" else ""


def _type_inside(tree: AvroType, step: Step, before: Sequence[Step], path: Path, of: str) -> AvroType:
    core, _ = nullable(tree)
    kind = kind_of(core)
    if isinstance(step, str) and kind == "record":
        types = {entry["name"]: entry["type"] for entry in core["fields"]}
        if step not in types:
            raise BadFieldError(_no_field(step, list(types), before, path, of))
        return types[step]
    if isinstance(step, str) and kind == "map":
        return core["values"]
    if not isinstance(step, str) and kind == "array":
        return core["items"]
    expected = "a record or a map" if isinstance(step, str) else "an array"
    if kind == "union":
        found = ", ".join(kind_of(branch) for branch in core)
        raise BadFieldError(
            f"field '{path.text}' of {of}: expected {expected} at `{text_of(before)}`, found a union of {found}: no path leads "
            f"into a union of several types. Name another field"
        )
    raise BadFieldError(
        f"field '{path.text}' of {of}: expected {expected} at `{text_of(before)}`, found {kind}: correct the path"
    )


def _no_field(name: str, there: list[str], before: Sequence[Step], path: Path, of: str) -> str:
    close = difflib.get_close_matches(name, there, 1)
    guess = f" (did you mean '{text_of([*before, close[0]])}'?)" if close else ""
    place = f"`{text_of(before)}`" if before else "it"
    return (
        f"{of} has no field '{path.text}'{guess}; {place} has {', '.join(there)}: use one of these, or add the "
        "field to the schema"
    )


def _pruned(tree: AvroType, parts: Parts) -> AvroType:
    """The type with only these parts. A map becomes a record of the wanted keys, see `types`."""
    if parts.is_whole:
        return tree
    if isinstance(tree, list):
        return [branch if branch == "null" else _pruned(branch, parts) for branch in tree]
    match kind_of(tree):
        case "record":
            by_name = {entry["name"]: entry for entry in tree["fields"]}
            return {**tree, "fields": [_member(by_name[name], part, by_name) for name, part in parts.members.items()]}
        case "map":
            return _record_of_keys(tree, parts)
    assert parts.items is not None
    return {"type": "array", "items": _pruned(tree["items"], parts.items)}


def _member(entry: dict[str, Any], parts: Parts, by_name: Mapping[str, Any]) -> dict[str, Any]:
    """A record's field with only these parts. `by_name`: all fields of the record."""
    pruned = {**entry, "type": _pruned(entry["type"], parts)}
    if isinstance(aliases := entry.get("aliases"), list):
        # With fewer fields in the record, an alias could match the field of a writer that another field would take.
        pruned["aliases"] = [alias for alias in aliases if not isinstance(alias, str) or alias not in by_name]
    return pruned


def _record_of_keys(tree: dict[str, Any], parts: Parts) -> dict[str, Any]:
    of_any = Parts()
    for part in parts.members.values():
        of_any.add(part)
    values = _pruned(tree["values"], of_any)  # one type for all keys, because the writer has one
    of_union = values if isinstance(values, list) else [values]
    member = values if nullable(values)[1] else ["null", *of_union]
    fields = [{"name": key, "type": member, "default": None} for key in parts.members]
    return {"type": "record", "name": "Map", "fields": fields, MAP_VALUES: values}
