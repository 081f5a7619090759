"""A case: some records, and what they are read with. It can be printed, pasted and made smaller."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, NamedTuple, Protocol

_MOST_SHRINKS = 400  # checks that making a case smaller may take


class Counts(NamedTuple):
    """What became of a case's records."""

    accepted: int
    refused: int


class Wrong(AssertionError):  # noqa: N818  (found in what is tested, no fault of the fuzzer)
    """Two readers disagree, or a promise does not hold."""


@dataclass(frozen=True, slots=True)
class Case:
    """Records as a target makes them. Everything in it is JSON, or bytes."""

    about: dict[str, Any] = field(default_factory=dict)  # schemas, settings
    values: list[Any] = field(default_factory=list)  # one a record

    def to_json(self) -> str:
        """As one line; bytes are `{"hex": "00ff"}`."""
        return json.dumps({"about": _as_json(self.about), "values": _as_json(self.values)})

    @classmethod
    def from_json(cls, text: str) -> Case:
        """The case that `to_json` wrote."""
        found = json.loads(
            text, object_hook=lambda node: bytes.fromhex(node["hex"]) if node.keys() == {"hex"} else node
        )
        return cls(found["about"], found["values"])


class Target(Protocol):
    """One decoder or encoder under test."""

    name: str
    share: float  # of a run's records
    in_c: bool  # whether it calls the C extensions, so that a run under the sanitizers is worth its time

    def make(self, rng: Random) -> Case:
        """A case; the same for the same seed."""
        ...

    def check(self, case: Case) -> Counts:
        """Check a case. Raises Wrong; any other exception is a finding too."""
        ...


def shrunk(case: Case, is_wrong: Callable[[Case], bool]) -> Case:
    """The case with as few records as still go wrong: halves are left out, then quarters, down to single records."""
    tries, size = 0, len(case.values) // 2
    while size and tries < _MOST_SHRINKS:
        for smaller in _without(case, size):
            tries += 1
            if is_wrong(smaller):
                case = smaller
                break
            if tries >= _MOST_SHRINKS:
                break
        else:
            size //= 2
            continue
        size = min(size, len(case.values) // 2)
    return case


def _without(case: Case, size: int) -> Iterator[Case]:
    for start in range(0, len(case.values), size):
        left = case.values[:start] + case.values[start + size :]
        if left:
            yield replace(case, values=left)


def _as_json(node: Any) -> Any:
    if isinstance(node, bytes):
        return {"hex": node.hex()}
    if isinstance(node, dict):
        return {key: _as_json(value) for key, value in node.items()}
    return [_as_json(item) for item in node] if isinstance(node, list | tuple) else node
