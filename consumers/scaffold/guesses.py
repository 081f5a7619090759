"""Guesses, as records and as sentences."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from millstream.inference.mapping import PLACEHOLDER

DEFAULT_MAX_LENGTH = 128  # most items of an event, where nothing else is known


@dataclass(frozen=True, slots=True)
class FieldGuess:
    """An event field that fills an element of an input."""

    options: dict[str, Any]  # as in config.yaml; the first is `field`
    why: str = ""  # what was guessed; empty: nothing


@dataclass(frozen=True, slots=True)
class InputGuess:
    """How an input is filled."""

    tensor: str
    dtype: str
    fields: list[FieldGuess]
    options: dict[str, Any] = field(default_factory=dict)  # shape, max_length
    is_list: bool = False  # one list field fills it
    why: str = ""


OPEN = FieldGuess({"field": PLACEHOLDER})
"""A field that the user must name."""


def are_open(inputs: Sequence[InputGuess]) -> bool:
    """Whether the user must fill in something. A vocabulary may have the placeholder as an entry of its own."""
    named = [entry.tensor for entry in inputs] + [one.options["field"] for entry in inputs for one in entry.fields]
    return PLACEHOLDER in named


def guesses(inputs: Sequence[InputGuess]) -> Iterator[str]:
    """Each guess in a sentence, for people."""
    for entry in inputs:
        if entry.why:
            yield f"input {entry.tensor}: {entry.why}"
        yield from (f"input {entry.tensor}, field {one.options['field']}: {one.why}" for one in entry.fields if one.why)
