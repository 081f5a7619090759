"""What a worker holds: events read and not yet acknowledged, bounded."""

import threading
import time
from collections import Counter, deque
from collections.abc import Mapping
from typing import NamedTuple

from millstream.inference.signature import DTYPES, Signature

# Of the limits, below which there is room again: soon, for in a backlog there is always to be something to decode; for one that
# paused its partitions later, as that threw away what was fetched ahead.
ROOM_SHARE, RESUME_SHARE = 7 / 8, 1 / 2
BACKLOG_AFTER = 1.0  # seconds since the oldest event in flight was read, from which on there is a backlog


class RecordCost(NamedTuple):
    """The memory that a record in flight takes."""

    copies: int  # times its key, value and headers
    overhead: int  # bytes more: key, columns


# Measured (vector workload): decoded, as many bytes as its value again for the model's inputs, and 340 for the other columns.
MEASURED_COST = RecordCost(2, 384)

# Largest ratio of a text's bytes in a tensor to its bytes in a record. The worst case is a single two-byte character: 3 bytes in
# Avro, 84 as a Python object with its pointer.
_TEXT_COPIES = 30


def record_cost_of(signature: Signature) -> RecordCost:
    """Memory of a record in flight, for a model with this signature.

    An item of a variable-length array can take one byte in a record and eight in a tensor, and no shape bounds the number of
    items. So each record counts as its worst-case size in memory. Measured: 65,536 small integers take 64 KiB as Avro, and
    506 KiB with their tensor.
    """
    columns: Counter[str] = Counter()  # by field: bytes in tensors, for each byte in the record
    for entry in signature.inputs:
        if entry.max_length is not None:
            for field in entry.fields:
                columns[field] += _TEXT_COPIES if entry.dtype == "string" else DTYPES[entry.dtype][0].itemsize
    return MEASURED_COST._replace(copies=max(MEASURED_COST.copies, 1 + max(columns.values(), default=0)))


class InFlightBudget:
    """Counts events and bytes between the poll and the commit. Thread-safe: one thread adds, another releases, in order."""

    def __init__(self, max_events: int, max_bytes: int, weight: RecordCost | None = None, batch: int = 1) -> None:
        """Args:
        max_events: full from here on, until there is room again: below a share of it.
        max_bytes: the same for bytes.
        weight: of a record; None: its value.
        batch: events of a full micro-batch: where there is room there is room for one, up to half of all.
        """
        self._soon = max(min(ROOM_SHARE, 1 - batch / max_events), RESUME_SHARE)
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._weight = weight or RecordCost(1, 0)
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
            self._bytes += self._taken(events, size)
            self._arrivals.append((self._added, arrived))
            self._full = self._full or self.events >= self._max_events or self._bytes >= self._max_bytes

    def release(self, events: int, size: int) -> None:
        """Count events out, oldest first."""
        with self._lock:
            self._released += events
            self._bytes -= self._taken(events, size)
            while self._arrivals and self._arrivals[0][0] <= self._released:
                self._arrivals.popleft()
            if self._full:
                self._lock.notify_all()

    def wait_for_room(self, timeout: float, *, paused: bool = False) -> bool:
        """Wait until there is room, at most `timeout` seconds; whether there is.

        Args:
            timeout: seconds.
            paused: whether the partitions are: then there is room from half of the limits down.
        """
        share = RESUME_SHARE if paused else self._soon
        with self._lock:
            if self._full:
                self._full = not self._lock.wait_for(lambda: self._holds_at_most(share), timeout)
            return not self._full

    def _holds_at_most(self, share: float) -> bool:
        return self.events <= int(self._max_events * share) and self._bytes <= int(self._max_bytes * share)

    def part(self, events: int, size: int) -> float:
        """What part of the limits these events take, whose values have so many bytes: 1 is all."""
        return max(events / self._max_events, self._taken(events, size) / self._max_bytes)

    def _taken(self, events: int, size: int) -> int:
        """Bytes of so many events whose values have so many."""
        return size * self._weight.copies + events * self._weight.overhead

    @property
    def events(self) -> int:
        """Events in flight."""
        return self._added - self._released

    @property
    def bytes(self) -> int:
        """Bytes in flight: of the records' values, their copies and what is around them."""
        return self._bytes

    def has_backlog(self) -> bool:
        """Whether there is much to do: the oldest event was read long ago, or a quarter of the limit is in flight."""
        oldest = self.oldest()
        late = oldest is not None and time.monotonic() - oldest > BACKLOG_AFTER
        return late or self.events > self._max_events // 4

    def oldest(self) -> float | None:
        """When the oldest event in flight was read, seconds on the monotonic clock; None where there is none."""
        with self._lock:
            return self._arrivals[0][1] if self._arrivals else None


class TopicQuotas:
    """How many records of each topic may wait for the executor, by the topics' weights, with hysteresis. Thread-safe.

    Without it a topic of little weight that has a backlog would fill all that a worker may hold, and the others, which are to
    get most of the executor, could not even be read.
    """

    def __init__(self, weights: Mapping[str, float], records: int) -> None:
        """Args:
        weights: by topic.
        records: that wait of all topics together.
        """
        self.weights = weights
        total = sum(weights.values())
        self._most = {topic: max(int(records * weight / total), 2) for topic, weight in weights.items()}
        self.least = min(
            self._most.values()
        )  # records that one read may bring, so that it goes little beyond any share
        self._lock = threading.Lock()
        self._waiting: Counter[str] = Counter()
        self._full: frozenset[str] = frozenset()

    def add(self, topic: str, records: int) -> None:
        """Records were read."""
        with self._lock:
            self._waiting[topic] += records
            if self._waiting[topic] >= self._most[topic]:
                self._full |= {topic}

    def remove(self, topic: str, records: int) -> None:
        """Records went to the executor."""
        with self._lock:
            self._waiting[topic] -= records
            if topic in self._full and self._waiting[topic] <= self._most[topic] // 2:
                self._full -= {topic}

    @property
    def full(self) -> frozenset[str]:
        """Topics of which nothing more is to be read."""
        return self._full
