"""Damage to YAML files: to the text, and to what it says."""

from __future__ import annotations

from random import Random
from typing import Any

import yaml

from tests.fuzz.damage import damaged

_SYNTAX = [
    *(
        "*a",
        "&a ",
        "!!python/object:os.system ",
        "!!binary x",
        "? ",
        "- ",
        "\t",
        "${",
        "${A}",
        "${A:-}",
        "$${",
        "<<: ",
        "|\n",
    ),
    *(
        ">\n",
        "%YAML 9.9\n",
        "---\n",
        "...\n",
        "{",
        "}",
        "[",
        "]",
        "'",
        '"',
        ": ",
        "#",
        "\u0085",
        "\ufeff",
        "\u2028",
        "~",
        "0x1F",
    ),
    *(
        "1e999",
        ".nan",
        ".inf",
        "2001-01-01",
        "2001-99-99",
        "0o7",
        "1_000",
        "=",
        "yes",
        "!!int x",
        "!!float x",
        "!!timestamp x",
    ),
]
_ODD: list[Any] = [
    *(
        None,
        True,
        False,
        0,
        -1,
        1,
        2**31,
        2**63,
        10**30,
        1.5,
        -0.5,
        float("nan"),
        float("inf"),
        "",
        "x",
        " ",
        "0",
        "NaN",
        "5ms",
    ),
    *(
        "1e999s",
        "-5ms",
        "99999999999999999999h",
        "KiB",
        "1KiB",
        "9" * 400,
        "1e400",
        "a" * 3000,
        "\0",
        "\x1b[31m",
        "ü",
        "${B:-x}",
    ),
    *(
        [],
        {},
        [None],
        [[]],
        [1, 1],
        ["x", "x"],
        {"": ""},
        {"x": {"y": [1]}},
        {1: 2},
        {None: None},
        {"env": "A"},
        {"env": "GONE"},
    ),
    *(
        {"file": "gone"},
        {"file": "."},
        {"file": "\0"},
        {"env": 1, "file": 2},
        {"env": None},
        "..",
        "/",
        "a/b",
        "file\0name",
        b"\xff",
    ),
]


def damaged_yaml(text: str, rng: Random) -> bytes:
    """The text, with some things in it other than they were."""
    if rng.random() < 0.5:
        data = yaml.safe_load(text)
        for _ in range(rng.choice([1, 1, 2, 3])):
            data = _bent(data, rng)
        text = yaml.safe_dump(
            data, sort_keys=False, allow_unicode=True, default_flow_style=rng.choice([None, True, False])
        )
    value = text.encode()
    if rng.random() < 0.5:
        for _ in range(rng.choice([1, 2])):
            place = rng.randrange(len(value) + 1)
            value = value[:place] + rng.choice(_SYNTAX).encode() * rng.choice([1, 1, 1, 3, 500]) + value[place:]
    return damaged(value, [value], rng) if rng.random() < 0.2 else value


def _bent(node: Any, rng: Random) -> Any:
    if isinstance(node, dict) and node and rng.random() < 0.85:
        key = rng.choice(list(node))
        match rng.randrange(7):
            case 0:
                return {name: value for name, value in node.items() if name != key}
            case 1:
                return {**node, rng.choice(["x", key + "s" if isinstance(key, str) else 1, ""]): rng.choice(_ODD)}
        return {**node, key: _bent(node[key], rng)}
    if isinstance(node, list) and node and rng.random() < 0.85:
        place = rng.randrange(len(node))
        return [*node[:place], *[_bent(node[place], rng)] * rng.randrange(3), *node[place + 1 :]]
    return rng.choice(_ODD)
