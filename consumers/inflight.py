"""Micro-batches in flight: which results may be released, and how far everything is done. Pure."""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

T = TypeVar("T")
P = TypeVar("P", bound=Hashable)

Ordering = Literal["partition", "key", "none"]


@dataclass(slots=True)
class _Flight(Generic[T]):
    number: int
    keys: frozenset[Hashable]
    answer: T | None = None
    answered: bool = False


class InFlight(Generic[T]):
    """Holds micro-batches from their departure until their results may go on.

    - `partition`: results leave in the order in which the batches left, so each partition's order is kept.
    - `key`: a result waits only for earlier batches that share a key with its own; events without a key wait for none.
    - `none`: a result leaves at once.
    """

    def __init__(self, ordering: Ordering) -> None:
        self._ordering = ordering
        self._flights: dict[int, _Flight[T]] = {}  # in order of departure
        self._departed = 0

    def __len__(self) -> int:
        return len(self._flights)

    def depart(self, keys: Iterable[Hashable] = ()) -> int:
        """Note that a batch leaves; returns its number, one more than the last one's.

        Args:
            keys: the keys of its events, where the order is by key.
        """
        number = self._departed
        self._departed += 1
        self._flights[number] = _Flight(number, frozenset(keys) if self._ordering == "key" else frozenset())
        return number

    def arrive(self, number: int, answer: T) -> list[tuple[int, T]]:
        """Note a batch's result; returns (number, result) of all that may go on now, in order of departure."""
        flight = self._flights[number]
        flight.answer, flight.answered = answer, True
        released = [flight] if self._ordering == "none" else self._releasable()
        for one in released:
            del self._flights[one.number]
        return [(one.number, one.answer) for one in released if one.answer is not None]

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


class Watermark(Generic[P]):
    """How far each partition is done: below it every record of every batch has its result.

    Batches cover the records in the order in which they were read, so the first batch that is not done bounds them all.
    """

    def __init__(self) -> None:
        self._next = 0  # the first number that is not done
        self._done: dict[int, Mapping[P, int]] = {}  # beyond a gap

    def done(self, number: int, ends: Mapping[P, int]) -> dict[P, int]:
        """Note that a batch is done, up to these ends (a partition's next offset); returns the partitions that moved on."""
        moved: dict[P, int] = {}
        self._done[number] = ends
        while self._next in self._done:
            moved |= self._done.pop(self._next)
            self._next += 1
        return moved

    @property
    def waiting(self) -> int:
        """Batches that are done and wait for an earlier one."""
        return len(self._done)
