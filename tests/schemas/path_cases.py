"""Nested schemas, values and paths into them, for the tests of the decoders."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from hypothesis import strategies as st

from millstream.schemas.paths import Every, Step, text_of
from millstream.schemas.store import AvroType
from tests.schemas.avro.avro_cases import SCALARS, SYMBOLS, Names, record, scalar

KEYS = ["a", "my.key", "ü", ""]


@st.composite
def types(draw: st.DrawFn, names: Names, depth: int, scalars: Sequence[str]) -> AvroType:
    """A type, so many levels deep, with records, arrays and maps in it."""
    kinds = ["nullable", "record", "record", "array", "map"] if depth else []
    kind = draw(st.sampled_from([*kinds, *scalars[: 3 if depth else None]]))
    match kind:
        case "nullable":
            core = draw(types(names, depth - 1, scalars).filter(lambda core: not isinstance(core, list)))
            return draw(st.sampled_from([["null", core], [core, "null"]]))
        case "record":
            inner = draw(st.lists(types(names, depth - 1, scalars), min_size=1, max_size=3))
            return record(*[(f"r{index}", one) for index, one in enumerate(inner)], name=names.next())
        case "array":
            return {"type": "array", "items": draw(types(names, depth - 1, scalars))}
        case "map":
            return {"type": "map", "values": draw(types(names, depth - 1, scalars))}
    return scalar(kind, names)


@st.composite
def schemas(draw: st.DrawFn, scalars: Sequence[str] = SCALARS) -> dict[str, Any]:
    names = Names()
    inner = draw(st.lists(types(names, 3, scalars), min_size=1, max_size=3))
    return record(*[(f"f{index}", one) for index, one in enumerate(inner)])


def data(of: AvroType) -> st.SearchStrategy[Any]:
    """Values of a type."""
    if isinstance(of, list):
        return st.one_of(*map(data, of))
    kind = of["type"] if isinstance(of, dict) else of
    match kind:
        case "record":
            return st.fixed_dictionaries({field["name"]: data(field["type"]) for field in of["fields"]})
        case "array":
            return st.lists(data(of["items"]), max_size=3)
        case "map":
            return st.dictionaries(st.sampled_from([*KEYS, "other"]), data(of["values"]), max_size=4)
    return {
        "null": st.none(),
        "boolean": st.booleans(),
        "int": st.integers(-(2**31), 2**31 - 1),
        "long": st.integers(-(2**63), 2**63 - 1),
        "float": st.floats(width=32, allow_nan=False, allow_infinity=False),
        "double": st.floats(allow_nan=False, allow_infinity=False),
        "string": st.text(max_size=5),
        "bytes": st.binary(max_size=5),
        "fixed": st.binary(min_size=3, max_size=3),
        "enum": st.sampled_from(SYMBOLS),
    }[kind]


def path_into(schema: dict[str, Any], rng: Random) -> str:
    """A path to a value that can be a column, if there is one on the way that chance takes."""
    steps: list[Step] = []
    tree: AvroType = schema
    while True:
        core: Any = next((branch for branch in tree if branch != "null"), "null") if isinstance(tree, list) else tree
        match core["type"] if isinstance(core, dict) else core:
            case "record" if core["fields"] and (not steps or rng.random() < 0.8):
                entry = rng.choice(core["fields"])
                steps.append(entry["name"])
                tree = entry["type"]
            case "array" if rng.random() < 0.8:
                places: list[Step] = [Every.ITEM, 0, 1, -1, 7]
                steps.append(rng.choice(places))
                tree = core["items"]
            case "map":
                steps.append(rng.choice(KEYS))
                tree = core["values"]
            case _:
                return text_of(steps)


def value_at(value: Any, steps: Sequence[Step]) -> Any:
    """The value at these steps; None where one of them leads nowhere."""
    for place, step in enumerate(steps):
        if value is None:
            return None
        match step:
            case Every():
                return [value_at(item, steps[place + 1 :]) for item in value]
            case int():
                value = value[step] if -len(value) <= step < len(value) else None
            case str():
                value = value.get(step)
    return value
