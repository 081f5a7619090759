"""Tracks up to which batch all results are written. Pure."""

from typing import Generic, TypeVar

T = TypeVar("T")


class Watermark(Generic[T]):
    """The first batch whose results are not written yet. All batches before it are done.

    Batches are numbered in the order of their records, so the offsets of all batches before the watermark can be committed.
    """

    def __init__(self) -> None:
        self._next = 0
        self._done: dict[int, T] = {}  # done batches behind the watermark

    @property
    def first(self) -> int:
        """The number of this batch."""
        return self._next

    def done(self, number: int, what: T) -> list[T]:
        """Note that a batch is done. Returns the entries that are now below the watermark, in order."""
        moved: list[T] = []
        self._done[number] = what
        while self._next in self._done:
            moved.append(self._done.pop(self._next))
            self._next += 1
        return moved
