"""Builds a cheaper schema with the same wire encoding, to find where a record ends.

fastavro makes a dict of each record, with an entry for each field, even for fields without bytes. If a map's values are records
of 100 nulls, three bytes become 100 entries. If a boolean is nested in 60 records, one byte becomes 60 dicts. So this module
flattens records, drops types without bytes, and reads text as bytes: only text in wanted fields must be UTF-8.
"""

import json
from typing import Any

from millstream.schemas.avro.types import kind_of
from millstream.schemas.store import AvroType


class SameBytes:
    """Builds the types of one schema. Place them in it in the order of the calls: later types refer to earlier ones by name."""

    def __init__(self, definition: AvroType) -> None:
        """Args:
        definition: the schema that the types go into; new names differ from all its names.
        """
        text = json.dumps(definition)
        self.prefix = "Same"
        while self.prefix in text:
            self.prefix += "_"
        self._names = 0
        self._seen: dict[int, str] = {}  # enums and fixed types by the identity of their trees: each is defined once

    def type_of(self, tree: AvroType) -> AvroType:
        """Return a type with the same encoding."""
        parts = self._parts(tree)
        if len(parts) < 2:
            return parts[0] if parts else "null"
        fields = [{"name": f"f{index}", "type": part} for index, part in enumerate(parts)]
        return {"type": "record", "name": self._name(), "fields": fields}

    def _parts(self, tree: AvroType) -> list[AvroType]:
        """Types whose encodings, end to end, are the encoding of this type."""
        kind = kind_of(tree)
        if kind == "record":
            return [part for entry in tree["fields"] for part in self._parts(entry["type"])]
        return [] if kind == "null" else [self._of_one(kind, tree)]

    def _of_one(self, kind: str, tree: AvroType) -> AvroType:
        match kind:
            case "union":
                return [self.type_of(branch) for branch in tree]
            case "array":
                return {"type": "array", "items": self.type_of(tree["items"])}
            case "map":
                return {"type": "map", "values": self.type_of(tree["values"])}
            case "enum" | "fixed":
                return self._named(tree)
        return "bytes" if kind == "string" else tree

    def _named(self, tree: dict[str, Any]) -> AvroType:
        if id(tree) in self._seen:
            return self._seen[id(tree)]
        self._seen[id(tree)] = name = self._name()
        return {**tree, "name": name}

    def _name(self) -> str:
        self._names += 1
        return f"{self.prefix}{self._names}"
