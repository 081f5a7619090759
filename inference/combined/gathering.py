"""Puts the answers of several models back into the order of the events."""

from collections.abc import Callable, Mapping

import numpy as np

from millstream.inference.combined.part import Outputs, Part
from millstream.inference.errors import EventRejection, EventsRejected
from millstream.inference.executors.interface import ANSWERED_BY
from millstream.schemas.arrays import Ints


def groups_of(chosen: Ints) -> list[tuple[int, Ints]]:
    """For each value, ascending, its rows, ascending. `chosen`: [events], at least one event."""
    first = int(chosen[0])
    if (chosen == first).all():
        return [(first, np.arange(len(chosen)))]
    order = np.argsort(chosen, kind="stable")
    ordered = chosen[order]
    starts = [0, *(np.flatnonzero(ordered[1:] != ordered[:-1]) + 1).tolist(), len(order)]
    values = ordered[starts[:-1]].tolist()
    return [(value, order[start:stop]) for value, start, stop in zip(values, starts[:-1], starts[1:], strict=True)]


class Gathering:
    """The answers to one micro-batch, as they come in."""

    def __init__(self, events: int) -> None:
        self._events = events
        self._parts: list[Part] = []
        self._answered_by: list[int] = []
        self._rejected: dict[int, EventRejection] = {}

    def add(self, part: Part, answered_by: int) -> None:
        """Add the answers of one model. `answered_by`: its number. No two parts have a row in common."""
        if part.rejected:
            self.reject(part.rejected)
        if len(part.rows):
            self._parts.append(part)
            self._answered_by.append(answered_by)

    def reject(self, rejected: Mapping[int, EventRejection]) -> None:
        """Add events that get no prediction."""
        if rejected:
            self._rejected |= rejected

    def outputs(self, described: Callable[[Outputs], Outputs] | None = None) -> Outputs:
        """All outputs, with `ANSWERED_BY`, in the order of the events.

        Args:
            described: adds more outputs to these.

        Raises:
            EventsRejected: some events have none. It has the outputs of the others.
        """
        outputs, rows = self._joined()
        if described is not None and len(rows):
            outputs = described(outputs)
        if self._rejected:
            raise EventsRejected(outputs, rows, dict(sorted(self._rejected.items())))
        assert len(rows) == self._events
        return outputs

    def _joined(self) -> tuple[Outputs, Ints]:
        parts = self._parts
        if not parts:
            return {}, np.empty(0, np.int64)
        if len(parts) == 1:
            rows = parts[0].rows
            return {**parts[0].outputs, ANSWERED_BY: np.full(len(rows), self._answered_by[0])}, rows
        rows = np.concatenate([part.rows for part in parts])
        if len(rows) == self._events:  # all have answers: faster than sorting
            order = np.empty(len(rows), np.int64)
            order[rows] = np.arange(len(rows))
        else:
            order = np.argsort(rows, kind="stable")
        outputs = {name: np.concatenate([part.outputs[name] for part in parts])[order] for name in parts[0].outputs}
        outputs[ANSWERED_BY] = np.repeat(self._answered_by, [len(part.rows) for part in parts])[order]
        return outputs, rows[order]
