"""Decides which model each event of a micro-batch runs on. Pure."""

import operator
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any, NamedTuple, Protocol

import numpy as np

from millstream.inference.executors.interface import Inputs, rows_of
from millstream.schemas.arrays import Ints, Mask
from millstream.schemas.wording import dotted, shown

NO_MODEL = -1

_COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Choice(Protocol):
    """A rule that decides."""

    @property
    def default(self) -> int:
        """The number of the model of events that nothing fits; `NO_MODEL` if there is none."""
        ...

    def chosen(self, inputs: Inputs) -> Ints:
        """The number of each event's model; `NO_MODEL` if there is none. `inputs`: of at least one event."""
        ...

    def why_none(self, inputs: Inputs, row: int) -> str:
        """Why an event has no model: a sentence without a full stop."""
        ...

    def places(self, model: int) -> list[str]:
        """The places within `models.route` that choose the model of this number."""
        ...


class ByValue(NamedTuple):
    """By the value of one field."""

    field: str
    tensor: str  # with its values as texts
    models: Mapping[str, int]  # value -> number of its model
    default: int  # of the model of other events; may be `NO_MODEL`

    def chosen(self, inputs: Inputs) -> Ints:
        """See Choice."""
        keys = inputs[self.tensor].tolist()
        return np.fromiter(map(self.models.get, keys, repeat(self.default)), np.int64, len(keys))

    def why_none(self, inputs: Inputs, row: int) -> str:
        """See Choice."""
        return f"no model answers events whose field `{self.field}` is {shown_key(inputs[self.tensor][row])}"

    def places(self, model: int) -> list[str]:
        """See Choice."""
        own = [dotted(("route", "values", value)) for value, number in self.models.items() if number == model]
        return [*own, *_default(self, model)]


class Condition(NamedTuple):
    """A condition on one field. It doesn't hold for an event without the field."""

    tensor: str  # with numbers (NaN: none), or with texts (empty: none)
    operator: str  # == != < <= > >= in, or not in
    constants: tuple[str, ...] | tuple[float, ...]  # one, except for `in` and `not in`

    def holds(self, inputs: Inputs) -> Mask:
        """For each event, whether it holds."""
        values = inputs[self.tensor]
        there = values != "" if values.dtype == object else ~np.isnan(values)
        if self.operator in _COMPARISONS:
            found = _COMPARISONS[self.operator](values, self.constants[0])
        else:
            among = np.fromiter(map(frozenset(self.constants).__contains__, values.tolist()), np.bool_, len(values))
            found = among if self.operator == "in" else ~among
        held: Mask = np.asarray(found, np.bool_) & np.asarray(there, np.bool_)
        return held


class ByRules(NamedTuple):
    """By the first rule that holds."""

    rules: Sequence[tuple[Sequence[Condition], int]]  # conditions, all of which must hold, and the number of the model
    default: int  # of the model of other events; may be `NO_MODEL`

    def chosen(self, inputs: Inputs) -> Ints:
        """See Choice."""
        chosen = np.full(rows_of(inputs), self.default)
        open_: Mask = np.ones(len(chosen), np.bool_)
        for conditions, model in self.rules:
            held = open_
            for condition in conditions:
                held = held & condition.holds(inputs)
            chosen[held] = model
            open_ = open_ & ~held
        return chosen

    def why_none(self, inputs: Inputs, row: int) -> str:  # noqa: ARG002
        """See Choice."""
        return "no rule of `models.route.rules` holds for the event, and there is no `default`"

    def places(self, model: int) -> list[str]:
        """See Choice."""
        own = [dotted(("route", "rules", at)) for at, (_, number) in enumerate(self.rules) if number == model]
        return [*own, *_default(self, model)]


def _default(choice: Choice, model: int) -> list[str]:
    return ["route.default"] if choice.default == model else []


def shown_key(key: str) -> str:
    """A routing key for messages."""
    return shown(key) if key else "absent, null or empty"
