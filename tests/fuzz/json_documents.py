"""JSON events from a seed: of a schema, with things in them that are other than they should be."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from millstream.schemas.store import AvroType
from tests.fuzz.avro_schemas import SchemaMaker
from tests.fuzz.damage import EDGES
from tests.schemas.avro.avro_cases import SYMBOLS, record, scalar

NUMBERS = [
    *(
        "0",
        "-0",
        "-0.0",
        "01",
        "1.",
        ".5",
        "+1",
        "1e5",
        "1E-400",
        "1e400",
        "0.1e1",
        "NaN",
        "Infinity",
        "-Infinity",
        "5e-324",
    ),
    *(
        "18446744073709551615",
        "18446744073709551616",
        "3.4028235e38",
        "3.4028235677973366e38",
        "3.4028235677973365e38",
        "-0e-1",
    ),
    *(
        "16777217",
        "2.2250738585072011e-308",
        "1" * 40,
        "0." + "3" * 30,
        "1e-45",
        "9007199254740993",
        "1.7976931348623159e308",
    ),
    *map(str, EDGES),
]
TEXTS = [
    *(
        '"A"',
        '"B"',
        '"é😀"',
        r'"é\n\/"',
        r'"\ud83d\ude00"',
        r'"\ud800"',
        r'"\udc00\ud800"',
        r'"\x"',
        '"a\tb"',
        '"a',
        "''",
    ),
    *(r'"\u0000"', '""', '"' + "x" * 300 + '"', r'"\u00e9"', '"\x7f"', '"﻿"', '"true"', '"1"'),
]
OTHERS = [
    "true",
    "false",
    "null",
    "True",
    "nul",
    "[]",
    "{}",
    "[",
    "]",
    "}",
    "[null]",
    '{"x": 1}',
    "[[[]]]",
    "[1,]",
    '{"a":1,}',
    "/**/1",
]
_KINDS = ("boolean", "int", "long", "float", "double", "string", "enum")
_BEHIND = [b"x", b"{}", b",", b"\0", b"/**/", b"\xef\xbb\xbf", b"\xff", b" \n"]


class JsonSchemaMaker(SchemaMaker):
    """Makes types that JSON has a form of, some with a default."""

    def type(self, depth: int) -> AvroType:
        """See SchemaMaker."""
        kind = self._rng.choice((*_KINDS, *(["nullable", "array", "record"] if depth else [])))
        if kind in _KINDS:
            return scalar(kind, self._names)
        if kind == "nullable":
            return ["null", self._no_union(depth - 1)]
        if kind == "array":
            return {"type": "array", "items": self.type(depth - 1)}
        fields = [self._field(f"r{number}", depth - 1) for number in range(self._rng.randrange(4))]
        return record(*fields, name=self._names.next())

    def event(self) -> dict[str, Any]:
        """A record at the top."""
        fields = [self._field(f"f{number}", 3) for number in range(self._rng.randrange(1, 7))]
        return record(*fields, *([self._greedy()] if self._rng.random() < 0.1 else []))

    def _greedy(self) -> dict[str, Any]:
        """A field of which each two bytes of an event stand for a default of many."""
        kind = self._rng.choice(_KINDS[:-1])
        default = [_default(kind, self._rng)] * 30
        many = {"name": "many", "type": {"type": "array", "items": kind}, "default": default}
        return {"name": "greedy", "type": {"type": "array", "items": record(many, name=self._names.next())}}

    def _field(self, name: str, depth: int) -> dict[str, Any]:
        made = {"name": name, "type": self.type(depth)}
        default = _default(made["type"], self._rng) if self._rng.random() < 0.3 else _NONE
        return made if default is _NONE else {**made, "default": default}


_NONE = object()


def event_schema(rng: Random) -> dict[str, Any]:
    """A schema of JSON events."""
    return JsonSchemaMaker(rng, only_columns=True).event()


def _default(of: AvroType, rng: Random) -> Any:
    if isinstance(of, list):
        return None
    kind = of["type"] if isinstance(of, dict) else of
    if kind == "record":
        return _NONE
    if kind == "array":
        items = [_default(of["items"], rng) for _ in range(rng.choice([0, 1, 2, 30]))]
        return [] if _NONE in items else items
    return {"boolean": True, "int": 7, "long": 2**40, "float": 0.5, "double": 1e300, "string": "ü", "enum": SYMBOLS[1]}[
        kind
    ]


class Document:
    """Writes events of a schema; so much of them is odd."""

    def __init__(self, rng: Random, odd: float) -> None:
        self._rng = rng
        self._odd = odd

    def event(self, schema: dict[str, Any]) -> bytes:
        """An event, or what is nearly one."""
        text = self._space() + self._value(schema) + self._space()
        value = text.encode(errors="surrogatepass")
        if self._rng.random() < self._odd:
            value = self._bytes(bytearray(value))
        return value

    def _bytes(self, value: bytearray) -> bytes:
        rng, place = self._rng, self._rng.randrange(len(value) + 1)
        match rng.randrange(6):
            case 0:
                del value[place:]
            case 1:
                value[place : place + 1] = rng.randbytes(rng.randrange(3))
            case 2:
                value += rng.choice(_BEHIND)
            case 3:
                value[:0] = rng.choice(_BEHIND)
            case 4:
                value[place:place] = rng.choice(
                    [b"\\", b'"', b"\xed\xa0\x80", b"\xc0\xaf", b"\x00", b"\xf4\x90\x80\x80"]
                )
            case _:
                depth = rng.choice([5, 100, 201, 600, 5000])
                value[place:place] = b"[" * depth + b"]" * depth * rng.randrange(2)
        return bytes(value)

    def _value(self, of: AvroType) -> str:
        rng = self._rng
        if rng.random() < self._odd / 4:
            return rng.choice(rng.choice([NUMBERS, TEXTS, OTHERS]))
        if isinstance(of, list):
            return "null" if rng.random() < 0.4 else self._value(of[1] if of[0] == "null" else of[0])
        if isinstance(of, dict):
            return self._of_dict(of)
        match of:
            case "boolean":
                texts = ["true", "false"]
            case "string":
                texts = [TEXTS[0], TEXTS[2], TEXTS[3], TEXTS[4], '"' + "y" * rng.randrange(20) + '"']
            case "int":
                texts = [str(rng.randrange(-(2**31), 2**31))]
            case "long":
                texts = [str(number) for number in EDGES if -(2**63) <= number < 2**63]
            case _:
                texts = [repr(rng.gauss(0, 1e3)), str(rng.randrange(-9, 9)), "1e-3", "0.1"]
        return rng.choice(texts)

    def _of_dict(self, of: dict[str, Any]) -> str:
        match of["type"]:
            case "record":
                return self._members(of)
            case "array":
                items = [self._value(of["items"]) for _ in range(self._rng.choice([0, 1, 2, 2, 5, 20]))]
                return "[" + f"{self._space()},".join(items) + "]"
        return json.dumps(self._rng.choice(of["symbols"]))

    def _members(self, of: dict[str, Any]) -> str:
        rng = self._rng
        pairs = [
            (json.dumps(entry["name"]), self._value(entry["type"]))
            for entry in of["fields"]
            if "default" not in entry or rng.random() < 0.5
        ]
        if pairs and rng.random() < self._odd:
            match rng.randrange(4):
                case 0:
                    pairs.append(rng.choice(pairs))
                case 1:
                    pairs.pop(rng.randrange(len(pairs)))
                case 2:
                    pairs.append(('"other"', rng.choice(rng.choice([NUMBERS, TEXTS, OTHERS]))))
                case _:
                    rng.shuffle(pairs)
        space = self._space()
        return "{" + f",{space}".join(f"{name}{space}:{value}" for name, value in pairs) + "}"

    def _space(self) -> str:
        return "" if self._rng.random() < 0.7 else self._rng.choice([" ", "\t\r\n", "  "])
