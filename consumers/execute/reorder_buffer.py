"""Decides in which order the results of micro-batches may go on. Pure."""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Generic, Literal, TypeVar

T = TypeVar("T")

_NO_KEYS: frozenset[Hashable] = frozenset()

Ordering = Literal["partition", "key", "none"]


@dataclass(slots=True)
class _Flight(Generic[T]):
    number: int
    keys: frozenset[Hashable]
    answer: T | None = None
    answered: bool = False


class ReorderBuffer(Generic[T]):
    """Holds micro-batches from their submission until their results may go on.

    - `partition`: results go on in the order of submission, so each partition keeps its order.
    - `key`: a result waits only for earlier batches that have a key in common with it. Events without a key wait for none.
    - `none`: a result goes on at once.
    """

    def __init__(self, ordering: Ordering) -> None:
        self._ordering = ordering
        self._flights: dict[int, _Flight[T]] = {}  # in order of submission

    def __len__(self) -> int:
        return len(self._flights)

    def submit(self, number: int, keys: Iterable[Hashable] = ()) -> None:
        """Add a batch.

        Args:
            number: of the batch, in order of submission.
            keys: the keys of its events; used only for the ordering `key`.
        """
        self._flights[number] = _Flight(number, frozenset(keys) if self._ordering == "key" else _NO_KEYS)

    def complete(self, answers: Mapping[int, T]) -> list[T]:
        """Add results of batches, by their numbers. Returns all results that may go on now.

        They are in order of submission; with `none`, in that of `answers`.
        """
        for number, answer in answers.items():
            flight = self._flights[number]
            flight.answer, flight.answered = answer, True
        released = [self._flights[number] for number in answers] if self._ordering == "none" else self._releasable()
        for one in released:
            del self._flights[one.number]
        return [one.answer for one in released if one.answer is not None]

    def _releasable(self) -> list[_Flight[T]]:
        if self._ordering == "partition":
            return list(takewhile(lambda flight: flight.answered, self._flights.values()))
        found: list[_Flight[T]] = []
        waiting: set[Hashable] = set()  # keys of earlier batches without a result
        for flight in self._flights.values():
            if flight.answered and waiting.isdisjoint(flight.keys):
                found.append(flight)
            else:
                waiting |= flight.keys
        return found
