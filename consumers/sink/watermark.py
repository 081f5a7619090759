"""How far everything is written. Pure."""

from typing import Generic, TypeVar

T = TypeVar("T")


class Watermark(Generic[T]):
    """How far everything is done: below it every batch has its results written.

    Batches cover the records in the order in which they were read, so the first batch that is not done bounds them all.
    """

    def __init__(self) -> None:
        self._next = 0  # the first number that is not done
        self._done: dict[int, T] = {}  # beyond a gap

    def done(self, number: int, what: T) -> list[T]:
        """Note that a batch is done; returns what of all noted lies below the watermark now and did not before, in order."""
        moved: list[T] = []
        self._done[number] = what
        while self._next in self._done:
            moved.append(self._done.pop(self._next))
            self._next += 1
        return moved
