"""The micro-batching policy: pure; time comes in as an argument."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from consumers.events import Block, MicroBatch, Rows


@dataclass(frozen=True, slots=True)
class Limits:
    """When a micro-batch is closed."""

    max_events: int
    max_bytes: int  # of the records' values; one record larger than this is a batch of its own
    max_wait: float  # seconds since its oldest event was read


class Batcher:
    """Closes micro-batches by count, bytes and the age of the oldest event, in arrival order and across partitions.

    Records that are no events (refused, tombstones) ride along in their place, so that a batch covers every record read up
    to its last and its offsets can be committed as one. Where topics have weights, each has a queue of its own, and what they
    get of the batches under backlog is as their weights are: start-time fair queueing (Goyal, Vin and Cheng, 1996).
    """

    def __init__(self, limits: Limits, weights: Mapping[str, float] | None = None) -> None:
        """Args:
        limits: when a batch is closed.
        weights: by topic; then each block holds records of one topic only. None: all wait in one queue.
        """
        self._limits = limits
        self._weights = weights or {}
        self._waiting: dict[str, deque[Rows]] = {}  # by topic, those with anything in them
        self._served: dict[str, float] = {}  # records that left, over the topic's weight
        self._events = 0
        self._bytes = 0

    def add(self, block: Block) -> None:
        """Take the records of a block."""
        rows = Rows(block, 0, len(block.offsets), 0, len(block.good))
        topic = block.partitions[0][0] if self._weights else ""
        if topic not in self._waiting:
            # One that comes back has no claim for the time in which it wanted nothing.
            least = min((self._served[other] for other in self._waiting), default=0.0)
            self._served[topic] = max(self._served.get(topic, 0.0), least)
            self._waiting[topic] = deque()
        self._waiting[topic].append(rows)
        self._events += len(block.good)
        self._bytes += rows.bytes

    def due(self) -> float | None:
        """When the next batch closes by age, seconds on the monotonic clock; None where nothing waits."""
        if not self._waiting:
            return None
        return min(queue[0].block.arrived for queue in self._waiting.values()) + self._limits.max_wait

    def take(self, now: float) -> MicroBatch | None:
        """The next closed batch, or None where none is closed yet."""
        if self._events >= self._limits.max_events:
            return self._cut("size")
        if self._bytes >= self._limits.max_bytes:
            return self._cut("bytes")
        due = self.due()
        return self._cut("time") if due is not None and now >= due else None

    def drain(self) -> MicroBatch | None:
        """The next batch, closed or not, or None where nothing waits."""
        return self._cut("drain") if self._waiting else None

    def _cut(self, reason: str) -> MicroBatch:
        parts: list[Rows] = []
        events, size = self._limits.max_events, self._limits.max_bytes
        while self._waiting and (events > 0 and size > 0):
            topic = min(self._waiting, key=self._served.__getitem__)
            queue = self._waiting[topic]
            rows = queue.popleft()
            head, tail = _split(rows, min(events, self._turn(topic)), size, alone=not parts)
            if tail is not None:
                queue.appendleft(tail)
            if not queue:
                del self._waiting[topic]
            if head is None:
                break
            parts.append(head)
            events -= head.last - head.first
            size -= head.bytes
            self._served[topic] += (head.stop - head.start) / self._weights.get(topic, 1.0)
            if tail is not None and len(self._waiting) == 1:
                break
        batch = MicroBatch(tuple(parts), reason)
        self._events -= batch.events
        self._bytes -= batch.bytes
        return batch

    def _turn(self, topic: str) -> int:
        """Most events that the topic gives before the next one has its turn."""
        if len(self._waiting) == 1:
            return self._limits.max_events
        total = sum(self._weights[other] for other in self._waiting)
        return max(int(self._limits.max_events * self._weights[topic] / total), 1)


def _split(rows: Rows, events: int, size: int, *, alone: bool) -> tuple[Rows | None, Rows | None]:
    """As many of `rows` as fit into `events` and `size` bytes, and the rest; at least one record where `alone`."""
    block = rows.block
    stop = rows.stop
    if rows.last - rows.first > events:
        stop = int(block.good[rows.first + events - 1]) + 1
    before = int(block.ends[rows.start - 1]) if rows.start else 0
    if int(block.ends[stop - 1]) - before > size:
        stop = max(int(np.searchsorted(block.ends, before + size, side="right")), rows.start + (1 if alone else 0))
    if stop == rows.stop:
        return rows, None
    if stop == rows.start:
        return None, rows
    middle = int(np.searchsorted(block.good, stop))
    return (
        Rows(block, rows.start, stop, rows.first, middle),
        Rows(block, stop, rows.stop, middle, rows.last),
    )
