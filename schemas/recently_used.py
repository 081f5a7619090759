"""A bounded LRU cache: it evicts the least recently used entry first."""

from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class RecentlyUsed(Generic[K, V]):
    """Values by key, up to a total weight. Not thread-safe: threads that share it need a lock."""

    def __init__(self, most: int) -> None:
        """Args:
        most: total weight. A value that weighs more alone evicts all others.
        """
        self._most = most
        self._weight = 0
        self._entries: dict[K, tuple[V, int]] = {}  # value and weight, least recently used first

    def get(self, key: K) -> V | None:
        """Return the value, or None, and mark it as used."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        self._entries[key] = entry
        return entry[0]

    def put(self, key: K, value: V, weight: int = 1) -> None:
        """Add or replace a value."""
        self.drop(key)
        self._entries[key] = (value, weight)
        self._weight += weight
        while self._weight > self._most and len(self._entries) > 1:
            self.drop(next(iter(self._entries)))

    def drop(self, key: K) -> None:
        """Remove a value, if present."""
        _, weight = self._entries.pop(key, (None, 0))
        self._weight -= weight

    def __len__(self) -> int:
        return len(self._entries)
