"""Schemas from a seed that are nearly right, enormous, or nothing of the kind."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from tests.fuzz.avro_schemas import SchemaMaker


def any_definition(rng: Random) -> str:
    """What a file or a registry may hold under the name of a schema: nearly right, or nothing of the kind."""
    made: Any = SchemaMaker(rng, only_columns=False).record(rng.randrange(5))
    for _ in range(rng.choice([0, 1, 1, 2, 4])):
        made = _bent(made, rng)
    text = json.dumps(made)
    return text.replace('"DEEP"', _deep(rng)) if '"DEEP"' in text else text


_ODD: list[Any] = [
    *(
        None,
        True,
        0,
        -1,
        1.5,
        "",
        "int",
        "Event",
        "N1",
        "a.b",
        "null",
        "1x",
        [],
        {},
        [[]],
        ["null", "null"],
        [{}],
        "\ud800",
    ),
    *({"type": "fixed", "name": "F", "size": size} for size in (0, -1, 2**31, 2**62, "3", None)),
    *({"type": "enum", "name": "E", "symbols": symbols} for symbols in ([], ["A", "A"], [1], "AB", None, ["1x"])),
    *({"type": "array", "items": items} for items in ("null", {"type": "record", "name": "Z", "fields": []}, None)),
    *({"type": "record", "name": name, "fields": []} for name in ("Event", "", None, 7, "x y", "a..b")),
    {"type": {"type": {"type": "int"}}},
    {"type": "record", "name": "Event", "fields": [{"name": "again", "type": "Event"}]},
    {"type": "bytes", "logicalType": "decimal", "precision": -1, "scale": 2**40},
]
_DEFAULTS: list[Any] = [None, 0, "x", [], {}, [None], 1.5, True, 2**70, "\ud800", {"r0": 1}, [[1]], float("nan")]


def _bent(node: Any, rng: Random) -> Any:
    """The same with one thing in it other than it was."""
    if node and rng.random() < 0.8:
        if isinstance(node, dict):
            return _bent_dict(node, rng)
        if isinstance(node, list):
            place = rng.randrange(len(node))
            again = [node[place]] if rng.random() < 0.15 else []
            return [*node[:place], *again, _bent(node[place], rng), *node[place + 1 :]]
    return "DEEP" if rng.random() < 0.1 else rng.choice(_ODD)


def _bent_dict(node: dict[str, Any], rng: Random) -> dict[str, Any]:
    key = rng.choice(list(node))
    match rng.randrange(8):
        case 0:
            return {name: value for name, value in node.items() if name != key}
        case 1:
            added = rng.choice(["default", "aliases", "namespace", "logicalType", "order"])
            return {**node, added: rng.choice(_DEFAULTS)}
        case 2 if "type" in node and "name" in node:
            return {**node, "default": rng.choice(_DEFAULTS)}
        case 3:
            return {**node, key: rng.choice(_ODD)}
    return {**node, key: _bent(node[key], rng)}


def _deep(rng: Random) -> str:
    """A type nested many times, or doubled as often: a schema of a few bytes that stands for a great many."""
    match rng.randrange(3):
        case 0:
            depth = rng.choice([20, 150, 400, 2000])
            return '{"type": "array", "items": ' * depth + '"int"' + "}" * depth
        case 1:
            heads = [_HEAD % number for number in range(rng.choice([20, 150, 300]))]
            return "".join(heads) + '"int"' + "}]}" * len(heads)
    doubled = _HEAD % 0 + '"int"}]}'
    for number in range(rng.choice([5, 12, 25])):
        doubled = _HEAD % (number + 1) + doubled + f'}}, {{"name": "b", "type": "D{number}"}}]}}'
    return doubled


_HEAD = '{"type": "record", "name": "D%s", "fields": [{"name": "a", "type": '
