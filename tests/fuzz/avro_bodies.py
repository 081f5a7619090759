"""Avro bodies from a seed: values of a schema, well formed, in each form that the encoding allows."""

from __future__ import annotations

import struct
from random import Random
from typing import Any

from millstream.schemas.store import AvroType
from tests.fuzz.damage import EDGES, hostile_varint, zigzag

TEXTS = ["", "a", "NaN", "ü", "😀", "\0", "e" * 70, "\ufeff", "null", '"']
FLOATS = [0.0, -0.0, 1.5, -1.0, 3.4e38, 1e-45, float("inf"), float("-inf"), float("nan")]


class Body:
    """Writes a value of a schema, well formed; notes where its parts stand, for damage."""

    def __init__(self, rng: Random, head: bytes) -> None:
        self._rng = rng
        self._named: dict[str, dict[str, Any]] = {}
        self.out = bytearray(head)
        self.spans: list[tuple[int, int]] = []

    def add(self, tree: AvroType) -> None:
        """Append a value of this type."""
        start = len(self.out)
        if isinstance(tree, list):
            branch = self._rng.randrange(len(tree))
            self._number(branch)
            self.add(tree[branch])
        elif isinstance(tree, dict):
            if "name" in tree:
                self._named[tree["name"]] = tree
            self._of_dict(tree)
        elif tree in self._named:
            self.add(self._named[tree])
        else:
            self._primitive(tree)
        self.spans.append((start, len(self.out)))

    def _of_dict(self, tree: dict[str, Any]) -> None:
        match tree["type"]:
            case "record":
                for entry in tree["fields"]:
                    self.add(entry["type"])
            case "enum":
                self._number(self._rng.randrange(len(tree["symbols"])))
            case "fixed":
                self.out += self._rng.randbytes(tree["size"])
            case "array":
                self._blocks(tree["items"], keyed=False)
            case "map":
                self._blocks(tree["values"], keyed=True)
            case kind:
                self.add(kind)

    def _blocks(self, items: AvroType, *, keyed: bool) -> None:
        """An array or a map, in one block or several, some with their size."""
        for _ in range(self._rng.choice([0, 1, 1, 1, 2])):
            count, sized = self._rng.choice([1, 1, 2, 3, 9]), self._rng.random() < 0.15
            self._number(-count if sized else count)
            start = len(self.out)
            for _ in range(count):
                if keyed:
                    self._primitive("string")
                self.add(items)
            if sized:
                size = zigzag(len(self.out) - start)
                self.out[start:start] = size
                self.spans = [
                    (first + len(size) * (first >= start), last + len(size) * (first >= start))
                    for first, last in self.spans
                ]
        self._number(0)

    def _primitive(self, kind: str) -> None:
        rng = self._rng
        match kind:
            case "boolean":
                self.out.append(rng.randrange(2))
            case "int" | "long":
                bound = 2**31 if kind == "int" else 2**63
                numbers = [number for number in EDGES if -bound <= number < bound]
                self._number(rng.choice(numbers) if rng.random() < 0.3 else rng.randrange(-200, 10_000))
            case "float":
                self.out += struct.pack("<f", rng.choice(FLOATS))
            case "double":
                self.out += struct.pack("<d", rng.choice(FLOATS))
            case "string":
                self._sized(rng.choice(TEXTS).encode())
            case "bytes":
                self._sized(rng.randbytes(rng.choice([0, 1, 3, 70])))

    def _sized(self, content: bytes) -> None:
        self._number(len(content))
        self.out += content

    def _number(self, number: int) -> None:
        start = len(self.out)
        self.out += zigzag(number)
        self.spans.append((start, len(self.out)))


def hostile_body(rng: Random, head: bytes) -> bytes:
    """Bytes that no schema had a part in."""
    parts = [
        hostile_varint(rng) if rng.random() < 0.5 else rng.randbytes(rng.randrange(6)) for _ in range(rng.randrange(6))
    ]
    return head + b"".join(parts)
