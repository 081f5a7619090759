"""What a worker holds: events read and not yet acknowledged, bounded with hysteresis."""

import threading
from collections import deque


class Held:
    """Counts events and bytes between the poll and the commit. Thread-safe: one thread adds, another releases, in order."""

    def __init__(self, max_events: int, max_bytes: int) -> None:
        """Args:
        max_events: full from here on; room again at half of it.
        max_bytes: the same for bytes.
        """
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._lock = threading.Condition()
        self._full = False
        self._added = 0
        self._released = 0
        self._bytes = 0
        self._arrivals: deque[tuple[int, float]] = deque()  # (events added up to and with this poll, when it was read)

    def add(self, events: int, size: int, arrived: float) -> None:
        """Count events in."""
        with self._lock:
            self._added += events
            self._bytes += size
            self._arrivals.append((self._added, arrived))
            self._full = self._full or self.events >= self._max_events or self._bytes >= self._max_bytes

    def release(self, events: int, size: int) -> None:
        """Count events out, oldest first."""
        with self._lock:
            self._released += events
            self._bytes -= size
            while self._arrivals and self._arrivals[0][0] <= self._released:
                self._arrivals.popleft()
            if self._full and self.events <= self._max_events // 2 and self._bytes <= self._max_bytes // 2:
                self._full = False
                self._lock.notify_all()

    def wait_for_room(self, timeout: float) -> bool:
        """Wait until there is room, at most `timeout` seconds; whether there is."""
        with self._lock:
            return self._lock.wait_for(lambda: not self._full, timeout)

    @property
    def events(self) -> int:
        """Events held."""
        return self._added - self._released

    @property
    def bytes(self) -> int:
        """Bytes held, of the records' values."""
        return self._bytes

    def oldest(self) -> float | None:
        """When the oldest held event was read, seconds on the monotonic clock; None where nothing is held."""
        with self._lock:
            return self._arrivals[0][1] if self._arrivals else None
