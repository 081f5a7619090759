"""Parses where a value of an ensemble comes from: an output of a step, or the mean, the vote or the stack of several."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Literal, NamedTuple, get_args

from pydantic.config import JsonDict

from millstream.schemas.wording import shown

Combination = Literal["mean", "vote", "stack"]


class StepOutput(NamedTuple):
    """An output of a step."""

    step: str
    output: str

    def __str__(self) -> str:
        return f"{self.step}.{self.output}"


@dataclass(frozen=True, slots=True)
class OutputSource:
    """Where a value comes from."""

    combination: Combination | None  # None: the one output, as it is
    outputs: tuple[StepOutput, ...]
    weights: tuple[float, ...] = ()  # of each output; empty: all are equal. Only for `mean`


_OUTPUT: JsonDict = {"type": "string", "pattern": r"^[^.]+\..+$"}
_OUTPUTS: JsonDict = {"type": "array", "items": _OUTPUT, "minItems": 1}
_WEIGHTS: JsonDict = {
    "type": "object",
    "additionalProperties": {"type": "number", "exclusiveMinimum": 0},
    "minProperties": 1,
}


def _combination_schema(name: Combination) -> JsonDict:
    of: JsonDict = {"anyOf": [_OUTPUTS, _WEIGHTS]} if name == "mean" else _OUTPUTS
    return {"type": "object", "required": [name], "properties": {name: of}, "additionalProperties": False}


SOURCE_SCHEMA: JsonDict = {"anyOf": [_OUTPUT, *map(_combination_schema, get_args(Combination))]}


def parse_source(value: object) -> OutputSource:
    """Parse `STEP.OUTPUT` or a mapping such as `{mean: [STEP.OUTPUT, ...]}`. Raises ValueError: says expected and found."""
    if isinstance(value, OutputSource):
        return value
    if isinstance(value, str):
        return OutputSource(None, (_step_output(value),))
    if not isinstance(value, dict) or len(value) != 1 or (name := next(iter(value))) not in get_args(Combination):
        found = ", ".join(map(str, value)) if isinstance(value, dict) and value else shown(value)
        raise ValueError(f"expected STEP.OUTPUT, or a mapping with one of mean, vote and stack, found {found}.")
    given = value[name]
    if isinstance(given, dict) and name == "mean":
        weights = tuple(map(_weight, given.values()))
        return _combined(name, tuple(map(_step_output, given)), weights)
    if not isinstance(given, tuple):
        raise ValueError(f"expected a list such as {{{name}: [a.score, b.score]}}, found {shown(given)}.")
    return _combined(name, tuple(map(_step_output, given)))


def _combined(name: Combination, outputs: tuple[StepOutput, ...], weights: tuple[float, ...] = ()) -> OutputSource:
    if not outputs:
        raise ValueError(f"expected at least one STEP.OUTPUT under `{name}`, found none.")
    twice = next((output for output in outputs if outputs.count(output) > 1), None)
    if twice is not None and name != "stack":
        raise ValueError(f"expected each output once under `{name}`, found {twice} twice. Remove one.")
    return OutputSource(name, outputs, weights)


def _step_output(text: object) -> StepOutput:
    step, dot, output = text.partition(".") if isinstance(text, str) else ("", "", "")
    if not step or not dot or not output:
        raise ValueError(f"expected STEP.OUTPUT, an output of a step, found {shown(text)}.")
    return StepOutput(step, output)


def _weight(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value <= 0:
        raise ValueError(f"expected a weight above 0, found {shown(value)}.")
    return float(value)
