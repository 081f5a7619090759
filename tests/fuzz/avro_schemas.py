"""Avro schemas from a seed: any schema that a producer may register, and what a reader may make of it."""

from __future__ import annotations

from random import Random
from typing import Any

from millstream.schemas.store import AvroType
from tests.schemas.avro.avro_cases import ADDED, LOGICAL, PROMOTED, SCALARS, SYMBOLS, Names, logical, record, scalar

_IN_COLUMNS = (*SCALARS, "logical", "logical", "nullable", "nullable", "array", "record", "named")
_ANYTHING = (*_IN_COLUMNS, "map", "union", "null")


class SchemaMaker:
    """Makes types; the names in one schema are its own."""

    def __init__(self, rng: Random, *, only_columns: bool) -> None:
        """Args:
        rng: decides.
        only_columns: leave out what can't be a column: maps, and unions of more than null and a type.
        """
        self._rng = rng
        self._kinds = _IN_COLUMNS if only_columns else _ANYTHING
        self._names = Names()
        self._named: list[dict[str, Any]] = []

    def record(self, fields: int) -> dict[str, Any]:
        """A record at the top."""
        return record(*[(f"f{number}", self.type(3)) for number in range(fields)])

    def type(self, depth: int) -> AvroType:
        """Any type, so many levels deep."""
        kind = self._rng.choice(self._kinds if depth else SCALARS)
        made: AvroType
        match kind:
            case "nullable":
                made = ["null", self._no_union(depth - 1)]
                self._rng.shuffle(made)
            case "array":
                made = {"type": "array", "items": self.type(depth - 1)}
            case "map":
                made = {"type": "map", "values": self.type(depth - 1)}
            case "union":
                made = self._rng.sample(
                    ["null", "int", "string", "double", "boolean", "bytes"], self._rng.randrange(1, 5)
                )
            case "null":
                made = "null"
            case "logical":
                made = logical(self._rng.choice(LOGICAL), self._names)
            case "record":
                inner = [(f"r{number}", self.type(depth - 1)) for number in range(self._rng.randrange(1, 4))]
                made = record(*inner, name=self._names.next())
            case "named":  # a type once more, by its name
                made = str(self._rng.choice(self._named)["name"]) if self._named else "long"
            case _:
                made = scalar(kind, self._names)
        return self._kept(made)

    def _no_union(self, depth: int) -> AvroType:
        known = len(self._named)
        while isinstance(made := self.type(depth), list) or made == "null":
            del self._named[known:]  # nothing defines them
        return made

    def _kept(self, made: AvroType) -> AvroType:
        if isinstance(made, dict) and "name" in made:
            self._named.append(made)
        return made


class Evolution:
    """A reader's schema for what a writer's writes: fields left out, moved, promoted, renamed, added, some incompatibly."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def of(self, writer: dict[str, Any]) -> dict[str, Any]:
        """The reader's schema."""
        made: dict[str, Any] = _defined_once(self._record(writer, top=True), _definitions(writer, {}), set())
        return made

    def _record(self, writer: dict[str, Any], *, top: bool) -> dict[str, Any]:
        fields = [changed for entry in writer["fields"] if (changed := self._field(entry)) is not None]
        added = self._rng.sample(ADDED, self._rng.randrange(1 if top or not fields else 0, 3))
        fields += [entry for entry in added if entry["name"] not in {field["name"] for field in fields}]
        self._rng.shuffle(fields)
        return record(*fields, name=writer["name"])

    def _field(self, entry: dict[str, Any]) -> dict[str, Any] | None:
        field = dict(entry)
        match self._rng.randrange(12):
            case 0 | 1:
                return None
            case 2 | 3 | 4:
                field["type"] = self._type(field["type"])
            case 5 if not isinstance(field["type"], list) and field["type"] != "null":
                field["type"] = ["null", field["type"]]
            case 6:
                field |= {"name": "new_" + field["name"], "aliases": [field["name"]]}
            case 7:  # another type altogether
                field["type"] = self._rng.choice(["string", "long", "boolean", ["null", "double"]])
        return field

    def _type(self, of: AvroType) -> AvroType:
        if isinstance(of, list):
            kept = [branch if branch == "null" else self._type(branch) for branch in of]
            return kept if len({str(branch) for branch in kept}) == len(kept) else of
        kind = of["type"] if isinstance(of, dict) else of
        match kind:
            case "array":
                return {"type": "array", "items": self._type(of["items"])}
            case "record":
                return self._record(of, top=False)
            case "enum":
                symbols = self._rng.choice([SYMBOLS, [*SYMBOLS[::-1], "D"], SYMBOLS[:2]])
                return {**of, "symbols": symbols}
        return self._rng.choice([of, *PROMOTED.get(str(kind), [])])


def _definitions(tree: AvroType, found: dict[str, AvroType]) -> dict[str, AvroType]:
    """Each named type of a schema."""
    if isinstance(tree, list):
        for inner in tree:
            _definitions(inner, found)
    elif isinstance(tree, dict):
        if "name" in tree and isinstance(tree.get("type"), str) and tree["type"] in {"record", "enum", "fixed"}:
            found[tree["name"]] = tree
        for inner in ("type", "items", "values", "fields"):
            _definitions(tree.get(inner), found)
    return found


def _defined_once(tree: AvroType, known: dict[str, AvroType], seen: set[str]) -> Any:
    """A schema in which each name is defined where it comes first, also where what defined it was left out."""
    if isinstance(tree, list):
        return [_defined_once(inner, known, seen) for inner in tree]
    if isinstance(tree, str):
        return _defined_once(known[tree], known, seen) if tree in known and tree not in seen else tree
    if tree.get("type") in {"record", "enum", "fixed"}:
        if tree["name"] in seen:
            return tree["name"]
        seen.add(tree["name"])
    inside = {key: _defined_once(tree[key], known, seen) for key in ("type", "items", "values") if key in tree}
    fields = [{**entry, "type": _defined_once(entry["type"], known, seen)} for entry in tree.get("fields", ())]
    return {**tree, **inside, **({"fields": fields} if "fields" in tree else {})}
