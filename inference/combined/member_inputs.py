"""The inputs of several models as one set of tensors, in which equal inputs are there once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from millstream.inference.combined.routing import NO_MODEL, Choice
from millstream.inference.fallbacks import Fields
from millstream.inference.features import Features, fill_tensors, fitting
from millstream.inference.replaced import Replaced, Replacements, Source, missing_of
from millstream.inference.signature import TensorInput
from millstream.schemas.arrays import Ints
from millstream.schemas.table import Table

UNFIT = "__unfit__"
"""A reserved tensor: object [events, columns]. The reason why the event's fields don't fill some inputs that only some models
have; None: they do. Models with the same inputs share a column."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Inputs that are filled together: one of fixed length, or all inputs of variable length of a model."""

    inputs: tuple[TensorInput, ...]  # with their names in the union
    columns: tuple[int, ...] = ()  # those of `UNFIT` that an event which doesn't fit gets; empty: the event is rejected


@dataclass(frozen=True, slots=True)
class CombinedInputs:
    """The union."""

    units: tuple[Unit, ...]
    names: tuple[Mapping[str, str], ...]  # for each model: its tensor -> the tensor in the union
    columns: tuple[int | None, ...]  # for each model: its column of `UNFIT`; None: every event that runs fits
    choice: Choice | None = None  # of the model that an event runs on; None: it isn't known before it runs
    readers: Mapping[tuple[str, str | None], frozenset[int]] = field(
        default_factory=dict
    )  # field and its fallback -> the models that read it so

    @property
    def inputs(self) -> tuple[TensorInput, ...]:
        """All inputs."""
        return tuple(entry for unit in self.units for entry in unit.inputs)

    def unfilled(self, why: Sequence[str | None]) -> set[str]:
        """The tensors of models that an event can't run on, because it lacks their fields. `why`: its row of `UNFIT`."""
        return {
            entry.tensor
            for unit in self.units
            if unit.columns and all(why[column] is not None for column in unit.columns)
            for entry in unit.inputs
        }

    def fill(self, table: Table, *, allow_nan: bool, event_times: Ints | None = None) -> Features:
        """Turn a table of events into tensors, as `to_tensors` does.

        An event may lack the inputs of models that not every event runs on.
        """
        filled: dict[str, Any] = {}
        problems: dict[int, str] = {}
        replaced: dict[Source, Replaced] = {}
        width = 1 + max((column for column in self.columns if column is not None), default=-1)
        unfit = np.full((len(table), width), None, object) if width else None
        fields = Fields(table)
        for unit in self.units:
            tensors, found, of_unit = fill_tensors(fields, unit.inputs, allow_nan=allow_nan, event_times=event_times)
            filled |= tensors
            replaced |= of_unit.sources  # the same for a field of several units, but for another vocabulary
            if not unit.columns:
                problems = found | problems  # the first one counts
            elif unfit is not None:
                for row, why in found.items():
                    unfit[row, unit.columns] = [unfit[row, column] or why for column in unit.columns]
        if unfit is not None:
            filled[UNFIT] = unfit
        return fitting(
            filled, problems, Replacements(len(table), replaced | self._of_readers(fields, filled, replaced))
        )

    def _of_readers(
        self, fields: Fields, filled: Mapping[str, Any], replaced: Mapping[Source, Replaced]
    ) -> dict[Source, Replaced]:
        """What is missing in the events of the models that read a field. Another model's events may lack it by right.

        A field that no event lacks isn't looked at: all events count as having it.
        """
        missing = [source for source in replaced if source.option == "missing" and _read_by(source) in self.readers]
        if self.choice is None or not missing:
            return {}
        chosen = self.choice.chosen(filled)
        return {
            source: missing_of(
                fields.read(*_read_by(source)).column, np.isin(chosen, [*self.readers[_read_by(source)]])
            )
            for source in missing
        }


def combined_inputs(
    models: Sequence[tuple[str, Sequence[TensorInput]]],
    always: Sequence[bool],
    routing: Sequence[TensorInput] = (),
    choice: Choice | None = None,
) -> CombinedInputs:
    """The union of the inputs of models.

    Args:
        models: each model's name in the combination, and its inputs.
        always: for each model, whether every event runs on it.
        routing: inputs that decide which model an event runs on.
        choice: decides it by these inputs; an event may have no model. Else every event has one.
    """
    names: list[dict[str, str]] = []
    distinct: list[_Distinct] = []
    taken = {entry.tensor for entry in routing}
    for number, (model, inputs) in enumerate(models):
        own: dict[str, str] = {}
        for unit in _units(inputs):
            key = tuple(replace(entry, tensor=entry.tensor if len(unit) > 1 else "") for entry in unit)
            known = next((each for each in distinct if each.key == key), None)
            if known is None:
                renamed = tuple(replace(entry, tensor=_free(entry.tensor, model, taken)) for entry in unit)
                known = _Distinct(key, renamed, set())
                distinct.append(known)
            known.users.add(number)
            # Nothing fills a mask before its events are padded.
            own |= {
                entry.tensor: union.tensor for entry, union in zip(unit, known.inputs, strict=True) if not entry.mask
            }
        names.append(own)
    needed = [
        frozenset(at for at, each in enumerate(distinct) if number in each.users and each.is_optional(always, choice))
        for number in range(len(models))
    ]
    sets = list(dict.fromkeys(each for each in needed if each))  # models that need the same share a column
    units = [Unit((entry,)) for entry in routing]
    units += [
        Unit(each.inputs, tuple(column for column, of in enumerate(sets) if at in of))
        for at, each in enumerate(distinct)
    ]
    columns = tuple(sets.index(each) if each else None for each in needed)
    numbers: dict[tuple[str, str | None], set[int]] = {}
    for number, (_, inputs) in enumerate(models):
        for path, conversion in (each for entry in inputs for each in entry.converted_fields):
            numbers.setdefault((path, conversion.fallback), set()).add(number)
    readers = {paths: frozenset(of) for paths, of in numbers.items()}
    return CombinedInputs(tuple(units), tuple(names), columns, choice, readers)


def _read_by(source: Source) -> tuple[str, str | None]:
    """The key of `CombinedInputs.readers`."""
    return source.field, source.fallback


class _Distinct(NamedTuple):
    """Inputs that are there once."""

    key: tuple[TensorInput, ...]  # without names, if it is one input
    inputs: tuple[TensorInput, ...]  # with their names in the union
    users: set[int]  # the models

    def is_optional(self, always: Sequence[bool], choice: Choice | None) -> bool:
        """Whether an event may run without them, or have no model: it needs none then."""
        needed_by_all = len(self.users) == len(always) and (choice is None or choice.default != NO_MODEL)
        return not needed_by_all and not any(always[number] for number in self.users)


def _units(inputs: Sequence[TensorInput]) -> list[tuple[TensorInput, ...]]:
    """The inputs that are filled together, see `Unit`."""
    varying = tuple(entry for entry in inputs if entry.max_length is not None or entry.mask or entry.token_types)
    return [*((entry,) for entry in inputs if entry not in varying), *([varying] if varying else [])]


def _free(tensor: str, model: str, taken: set[str]) -> str:
    """A name that no other input of the union has. `taken`: gets it."""
    name, number = tensor, 1
    while name in taken:
        name = f"{model}.{tensor}" if number == 1 else f"{model}.{tensor}.{number}"
        number += 1
    taken.add(name)
    return name
