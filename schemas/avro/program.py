"""Compiles a writer schema and the wanted fields into a program: the steps of `avro_columns.c` through a record."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from millstream.schemas.avro.sources import Source
from millstream.schemas.avro.types import NO_DEFAULT, Field, fixed_size, kind_of, map_values, nullable, record_tree
from millstream.schemas.column_buffers import KINDS, Node, nodes_of
from millstream.schemas.store import AvroType, Schema

_STEP_KINDS = {kind: number for number, kind in enumerate([*KINDS, "pass", "map", "union"])}  # as in avro_columns.c
_NO_TARGET = -1  # the target of values that are skipped
_PROMOTIONS = {
    ("int", "long"),
    ("int", "float"),
    ("int", "double"),
    ("long", "float"),
    ("long", "double"),
    ("float", "double"),
}
_IN_UNIONS = {"boolean", "int", "long", "float", "double", "string"}  # types that are told apart by their node


class Step(NamedTuple):
    """A type of the writer schema, for `avro_columns.c`."""

    kind: int
    target: int  # the node that takes its values
    first: int = 0  # index of the first of its inner steps, which are consecutive
    members: int = 0
    size: int = 0  # bytes of a fixed or skipped value, or number of an enum's symbols
    symbols: tuple[bytes, ...] = ()  # of a wanted enum; the wanted keys of a map


@dataclass(frozen=True, slots=True)
class Program:
    """How to read the records of a writer schema."""

    nodes: list[Node]  # the first is the record, its members are `names`
    names: list[str]  # the writer's names of the wanted fields
    steps: list[Step]  # the first is the record
    places: list[str]  # of each step, for messages


def program_of(writer: Schema, sources: Sequence[Source], *, of_some: bool = False) -> Program | None:
    """Compile. Returns None if the program would not give exactly the result of Avro's schema resolution.

    With `of_some`, it may read a union of several types as one of them. It then refuses records with values of the others, and
    the caller reads these in another way.
    """
    wanted: dict[str, Field] = {}
    for source in sources:
        if source.writer_name is None:
            continue
        first = wanted.setdefault(source.writer_name, source.field)
        if first.type != source.field.type or not _takes(source.field.type, source.writer_type, of_some):
            return None
    fields = [
        replace(field, name=name, type=_as_column(field.type), default=NO_DEFAULT) for name, field in wanted.items()
    ]
    compiler = _Compiler(nodes_of(fields, 1))
    targets = dict(zip(wanted, compiler.nodes[0].members, strict=True))
    compiler.compile(record_tree(writer), targets)
    return Program(compiler.nodes, list(wanted), compiler.steps, compiler.places)


def _takes(reader: AvroType, writer: AvroType, of_some: bool) -> bool:
    """Whether the program can read values of the writer's type as the reader's type. `of_some`: see `program_of`."""
    (wanted, _), (written, _) = nullable(reader), nullable(writer)
    if of_some and isinstance(written, list):
        # A value without bytes would look like null.
        return all(fixed_size(own) != 0 for own in written) and any(_takes(wanted, own, of_some) for own in written)
    kind, values = kind_of(written), map_values(wanted)
    if values is not None or kind != kind_of(wanted):
        is_map = values is not None and kind == "map"
        return _takes(values, written["values"], of_some) if is_map else (kind, kind_of(wanted)) in _PROMOTIONS
    match kind:
        case "fixed":
            found = bool(written["size"] == wanted["size"])
        case "enum":
            found = set(written["symbols"]) <= set(wanted["symbols"])
        case "array":
            found = _takes(wanted["items"], written["items"], of_some)
        case "record":
            found = _takes_fields(wanted["fields"], written["fields"], of_some)
        case _:
            found = kind not in ("union", "map", "null")
    return found


def _takes_fields(wanted: Sequence[Any], written: Sequence[Any], of_some: bool) -> bool:
    """Whether the program can read these fields of a record from those that the writer's record has."""
    types = {entry["name"]: entry["type"] for entry in written}
    return all(
        entry["name"] in types
        and types.keys().isdisjoint(entry.get("aliases", ()))
        and _takes(entry["type"], types[entry["name"]], of_some)
        for entry in wanted
    )


def _as_column(tree: AvroType) -> AvroType:
    """The type of the column. An enum's column is text; only the steps need its symbols."""
    if isinstance(tree, list):
        return [_as_column(branch) for branch in tree]
    match kind_of(tree):
        case "enum":
            return "string"
        case "array":
            return {"type": "array", "items": _as_column(tree["items"])}
        case "record":
            fields = [{"name": entry["name"], "type": _as_column(entry["type"])} for entry in tree["fields"]]
            return {**tree, "fields": fields}
    return tree


class _Compiler:
    """Creates the steps. The inner steps of a type are consecutive."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes
        self.steps: list[Step] = []
        self.places: list[str] = []

    def compile(self, record: AvroType, targets: dict[str, int]) -> None:
        """Create the steps of a record with these wanted fields."""
        parts = [
            (entry["type"], f"field '{entry['name']}'", targets.get(entry["name"], _NO_TARGET))
            for entry in record["fields"]
        ]
        self._room([(record, "record", 0)])
        self.steps[0] = Step(_STEP_KINDS["record"], 0, *self._within(parts, 0))

    def _room(self, parts: Sequence[tuple[AvroType, str, int]]) -> int:
        first = len(self.steps)
        self.steps += [Step(0, 0)] * len(parts)
        self.places += [place for _, place, _ in parts]
        return first

    def _within(self, parts: Sequence[tuple[AvroType, str, int]], item_bytes: int) -> tuple[int, int]:
        """Create consecutive steps for these types. Returns the index of the first, and their number."""
        first = self._room(parts)
        for at, (tree, place, target) in enumerate(parts, first):
            self.steps[at] = self._step(tree, place, target, item_bytes)
        return first, len(parts)

    def _step(self, tree: AvroType, place: str, target: int, item_bytes: int) -> Step:
        """The step of a type. `item_bytes`: fewest bytes of an item of the innermost array around it; 0: there is none."""
        kind, size = kind_of(tree), fixed_size(tree)
        if target == _NO_TARGET and size is not None:
            return Step(_STEP_KINDS["pass"], _NO_TARGET, size=size)
        if target != _NO_TARGET:
            self.nodes[target].item_bytes = item_bytes
        if kind == "enum":
            symbols = () if target == _NO_TARGET else tuple(symbol.encode() for symbol in tree["symbols"])
            return Step(_STEP_KINDS[kind], target, size=len(tree["symbols"]), symbols=symbols)
        if kind == "array":
            item_bytes = max(least_bytes(tree["items"]), 1)
        inner = self._within(self._parts(tree, place, target), item_bytes)
        keys = self._keys(target) if kind == "map" else []
        return Step(_STEP_KINDS[kind], target, *inner, size or 0, tuple(key.encode() for key in keys))

    def _parts(self, tree: AvroType, place: str, target: int) -> list[tuple[AvroType, str, int]]:
        """The inner types of a type, with their places and targets."""
        match kind_of(tree):
            case "record":
                return self._fields(tree, place, target)
            case "union":
                return [
                    (branch, place, target if self._goes_to(branch, tree, target) else _NO_TARGET) for branch in tree
                ]
            case "array":
                return [(tree["items"], place, _NO_TARGET if target == _NO_TARGET else self.nodes[target].members[0])]
            case "map":
                members = [] if target == _NO_TARGET else self.nodes[target].members
                wanted = [
                    (tree["values"], f'{_open(place)}["{key}"]\'', member)
                    for key, member in zip(self._keys(target), members, strict=True)
                ]
                return [(tree["values"], place, _NO_TARGET), *wanted]  # first the values of the other keys
        return []

    def _goes_to(self, branch: AvroType, union: Sequence[AvroType], target: int) -> bool:
        """Whether values of a union's branch go to the node of the union."""
        if target == _NO_TARGET or branch == "null":
            return False
        if not isinstance(nullable(union)[0], list):
            return True
        kind, node = kind_of(branch), self.nodes[target]
        if kind == node.kind == "array":
            items = branch["items"]
            inner = items if isinstance(items, list) else [items]
            return any(self._goes_to(each, [each], node.members[0]) for each in inner)
        return (kind == node.kind and kind in _IN_UNIONS) or (kind, node.kind) in _PROMOTIONS

    def _keys(self, target: int) -> list[str]:
        """The wanted keys of the map that this node takes."""
        return [] if target == _NO_TARGET else [self.nodes[member].name for member in self.nodes[target].members]

    def _fields(self, record: AvroType, place: str, target: int) -> list[tuple[AvroType, str, int]]:
        """The fields of a record within the record: `field 'customer.age'`."""
        members = [] if target == _NO_TARGET else self.nodes[target].members
        targets = {self.nodes[member].name: member for member in members}
        return [
            (entry["type"], f"{_open(place)}.{entry['name']}'", targets.get(entry["name"], _NO_TARGET))
            for entry in record["fields"]
        ]


def _open(place: str) -> str:
    """A place without its closing quote, so that more can follow."""
    return place.removesuffix("'")


def least_bytes(tree: AvroType) -> int:
    """Fewest bytes of a value of a type."""
    match kind_of(tree):
        case "union":
            return 1 + min(map(least_bytes, tree), default=0)  # Avro allows a union without branches
        case "record":
            return sum(least_bytes(entry["type"]) for entry in tree["fields"])
    size = fixed_size(tree)
    return 1 if size is None else size
