"""A cache that is bounded: what was used least recently goes first."""

from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class RecentlyUsed(Generic[K, V]):
    """Values by key, of at most so much weight in all. For one thread at a time: threads that share it need a lock."""

    def __init__(self, most: int) -> None:
        """Args:
        most: weight of all values together. A value that weighs more is kept alone.
        """
        self._most = most
        self._weight = 0
        self._entries: dict[K, tuple[V, int]] = {}  # the least recently used first

    def get(self, key: K) -> V | None:
        """Return the value, None where there is none, and count this as a use of it."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        self._entries[key] = entry
        return entry[0]

    def put(self, key: K, value: V, weight: int = 1) -> None:
        """Keep a value, in place of an older one."""
        self.drop(key)
        self._entries[key] = (value, weight)
        self._weight += weight
        while self._weight > self._most and len(self._entries) > 1:
            self.drop(next(iter(self._entries)))

    def drop(self, key: K) -> None:
        """Forget a value, if it is there."""
        _, weight = self._entries.pop(key, (None, 0))
        self._weight -= weight

    def __len__(self) -> int:
        return len(self._entries)
