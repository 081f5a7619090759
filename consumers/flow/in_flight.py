"""Counts and bounds the events in flight: they are read, and their results are not final yet."""

import threading
import time
from collections import Counter, deque
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from millstream.inference.signature import DTYPES, Signature
from millstream.schemas.dtypes import NUMBERS, Dtype, ListOf
from millstream.schemas.lookup_columns import looked_up

# Once a limit is reached, there is room again below this share of it. The share is high, so that under backlog there is always
# something to decode. It is lower if the partitions were paused, because the next pause would again drop records fetched ahead.
ROOM_SHARE, RESUME_SHARE = 7 / 8, 1 / 2
BACKLOG_AFTER = 1.0  # seconds: if the oldest event in flight is older, there is a backlog


class RecordCost(NamedTuple):
    """The memory that a record in flight takes."""

    copies: int  # how many times the bytes of its key, value and headers
    overhead: int  # bytes in addition: for the key and the columns


# Measured (vector workload): after decoding, the model's inputs take as many bytes as the value, and the other columns 340.
MEASURED_COST = RecordCost(2, 384)

# Largest ratio of a text's bytes in a tensor to its bytes in a record. The worst case is a single two-byte character: 3 bytes in
# Avro, 84 as a Python object with its pointer.
_TEXT_COPIES = 30
# The same for a text of a list column, which has its bytes, where they start, and how many they are.
_TEXT_ITEM = 17
_CELL = 10  # bytes of an item in a column: a number of 64 bits, and whether it is null, rounded up
_NULL_MARK = 1  # bytes of an item in a list column that say whether it is null


def record_cost_of(signature: Signature, included: Mapping[str, Dtype]) -> RecordCost:
    """Memory of a record in flight, for a model with this signature, and for predictions that include these fields.

    An item of a variable-length array can take one byte in a record and eight in a tensor, and no shape bounds the number of
    items. So each record counts as its worst-case size in memory. Measured: 65,536 small integers take 64 KiB as Avro, and
    506 KiB with their tensor.
    """
    columns: Counter[str] = Counter()  # by array: bytes in tensors and columns, for each byte in the record
    types = sum(DTYPES[entry.dtype].itemsize for entry in signature.inputs if entry.token_types)  # bytes for each token
    for entry in signature.inputs:
        for field, _ in entry.reads if entry.array else ():
            if looked_up(field) is not None:  # no part of the record
                continue
            array, every, inside = field.partition("[]")
            if entry.max_length is not None:
                columns[array] += _TEXT_COPIES if entry.dtype == "string" else DTYPES[entry.dtype].itemsize
                columns[array] += 0 if entry.splitter is None else types
            if every and inside:  # an item without this value has two bytes, and a cell in the column
                columns[array] += _CELL // 2
    for field, dtype in included.items():
        if isinstance(dtype, ListOf):
            item = _TEXT_ITEM if dtype.items in ("string", "mixed") else np.dtype(NUMBERS[dtype.items]).itemsize
            columns[field.partition("[]")[0]] += item + _NULL_MARK
    return MEASURED_COST._replace(copies=max(MEASURED_COST.copies, 1 + max(columns.values(), default=0)))


class InFlightBudget:
    """Counts the events and bytes in flight. Thread-safe: one thread adds events, another releases them in the same order."""

    def __init__(self, max_events: int, max_bytes: int, weight: RecordCost | None = None, batch: int = 1) -> None:
        """Args:
        max_events: the limit is reached at this number of events. Then there is room again only below a share of it.
        max_bytes: the same for bytes.
        weight: memory of a record; None: the bytes of its value.
        batch: events of a full micro-batch. If there is room, there is room for one, or for half of `max_events` if that is less.
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
        """Add events."""
        with self._lock:
            self._added += events
            self._bytes += self._taken(events, size)
            self._arrivals.append((self._added, arrived))
            self._full = self._full or self.events >= self._max_events or self._bytes >= self._max_bytes

    def release(self, events: int, size: int) -> None:
        """Release events, the oldest first."""
        with self._lock:
            self._released += events
            self._bytes -= self._taken(events, size)
            while self._arrivals and self._arrivals[0][0] <= self._released:
                self._arrivals.popleft()
            if self._full:
                self._lock.notify_all()

    def wait_for_room(self, timeout: float, *, paused: bool = False) -> bool:
        """Wait up to `timeout` seconds for room. Returns whether there is room.

        Args:
            timeout: seconds.
            paused: whether the partitions are paused. Then there is room only below half of the limits.
        """
        share = RESUME_SHARE if paused else self._soon
        with self._lock:
            if self._full:
                self._full = not self._lock.wait_for(lambda: self._holds_at_most(share), timeout)
            return not self._full

    def _holds_at_most(self, share: float) -> bool:
        return self.events <= int(self._max_events * share) and self._bytes <= int(self._max_bytes * share)

    def part(self, events: int, size: int) -> float:
        """The share of the limits that these events take. `size`: bytes of their values."""
        return max(events / self._max_events, self._taken(events, size) / self._max_bytes)

    def _taken(self, events: int, size: int) -> int:
        """Memory of these events. `size`: bytes of their values."""
        return size * self._weight.copies + events * self._weight.overhead

    @property
    def events(self) -> int:
        """Events in flight."""
        return self._added - self._released

    @property
    def bytes(self) -> int:
        """Bytes in flight, with all copies and the overhead."""
        return self._bytes

    def has_backlog(self) -> bool:
        """Whether there is a backlog: the oldest event is older than 1 s, or more than a quarter of the limit is in flight."""
        oldest = self.oldest()
        late = oldest is not None and time.monotonic() - oldest > BACKLOG_AFTER
        return late or self.events > self._max_events // 4

    def oldest(self) -> float | None:
        """When the oldest event in flight was read, in seconds on the monotonic clock; None if there is none."""
        with self._lock:
            return self._arrivals[0][1] if self._arrivals else None


class TopicQuotas:
    """Bounds the records of each topic that wait for the executor, in proportion to the topics' weights. Thread-safe.

    Without this bound, a topic with a small weight and a backlog would reach the in-flight limit alone. The worker could then not
    read the other topics, which should get most of the executor.
    """

    def __init__(self, weights: Mapping[str, float], records: int) -> None:
        """Args:
        weights: by topic.
        records: most records of all topics that may wait.
        """
        self.weights = weights
        total = sum(weights.values())
        self._most = {topic: max(int(records * weight / total), 2) for topic, weight in weights.items()}
        # Most records of one read, so that no topic exceeds its share by much.
        self.least = min(self._most.values())
        self._lock = threading.Lock()
        self._waiting: Counter[str] = Counter()
        self._full: frozenset[str] = frozenset()

    def add(self, topic: str, records: int) -> None:
        """Note that records were read."""
        with self._lock:
            self._waiting[topic] += records
            if self._waiting[topic] >= self._most[topic]:
                self._full |= {topic}

    def remove(self, topic: str, records: int) -> None:
        """Note that records went to the executor."""
        with self._lock:
            self._waiting[topic] -= records
            if topic in self._full and self._waiting[topic] <= self._most[topic] // 2:
                self._full -= {topic}

    @property
    def full(self) -> frozenset[str]:
        """Topics that have reached their share. They are not read until half of it is free."""
        return self._full
