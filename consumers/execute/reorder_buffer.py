"""Micro-batches in flight: which results may be released. Pure."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

T = TypeVar("T")

Ordering = Literal["partition", "key", "none"]


@dataclass(slots=True)
class _Flight(Generic[T]):
    number: int
    keys: frozenset[Hashable]
    answer: T | None = None
    answered: bool = False


class ReorderBuffer(Generic[T]):
    """Holds micro-batches from their departure until their results may go on.

    - `partition`: results leave in the order in which the batches left, so each partition's order is kept.
    - `key`: a result waits only for earlier batches that share a key with its own; events without a key wait for none.
    - `none`: a result leaves at once.
    """

    def __init__(self, ordering: Ordering) -> None:
        self._ordering = ordering
        self._flights: dict[int, _Flight[T]] = {}  # in order of departure

    def __len__(self) -> int:
        return len(self._flights)

    def submit(self, number: int, keys: Iterable[Hashable] = ()) -> None:
        """Note that a batch leaves.

        Args:
            number: its place in the order of departures.
            keys: the keys of its events; looked at where the order is by key.
        """
        self._flights[number] = _Flight(number, frozenset(keys) if self._ordering == "key" else frozenset())

    def complete(self, number: int, answer: T) -> list[T]:
        """Note a batch's result; returns all that may go on now, in order of departure."""
        flight = self._flights[number]
        flight.answer, flight.answered = answer, True
        released = [flight] if self._ordering == "none" else self._releasable()
        for one in released:
            del self._flights[one.number]
        return [one.answer for one in released if one.answer is not None]

    def _releasable(self) -> list[_Flight[T]]:
        found: list[_Flight[T]] = []
        waiting: set[Hashable] = set()  # keys of earlier batches that are still out
        for flight in self._flights.values():
            if flight.answered and waiting.isdisjoint(flight.keys):
                found.append(flight)
            elif self._ordering == "partition":
                break
            else:
                waiting |= flight.keys
        return found
