"""Things that one call at a time uses, and that the next calls use again."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class FreeList(Generic[T]):
    """Gives each call a thing that no other call has at the time. There are as many as there are calls at a time."""

    def __init__(self, make: Callable[[], T]) -> None:
        """Args:
        make: makes another one.
        """
        self._make = make
        self._free: deque[T] = deque()  # a deque needs no lock

    @contextmanager
    def borrowed(self) -> Iterator[T]:
        """One for the context. The last one that was given back comes first, because its memory is warm."""
        try:
            thing = self._free.pop()
        except IndexError:
            thing = self._make()
        try:
            yield thing
        finally:
            self._free.append(thing)
