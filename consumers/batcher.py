"""The micro-batching policy: pure; time comes in as an argument."""

from collections import deque
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
    to its last and its offsets can be committed as one.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._waiting: deque[Rows] = deque()
        self._events = 0
        self._bytes = 0

    def add(self, block: Block) -> None:
        """Take the records of a block."""
        rows = Rows(block, 0, len(block.offsets), 0, len(block.good))
        self._waiting.append(rows)
        self._events += len(block.good)
        self._bytes += rows.bytes

    def due(self) -> float | None:
        """When the next batch closes by age, seconds on the monotonic clock; None where nothing waits."""
        return self._waiting[0].block.arrived + self._limits.max_wait if self._waiting else None

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
            rows = self._waiting.popleft()
            head, tail = _split(rows, events, size, alone=not parts)
            if head is not None:
                parts.append(head)
                events -= head.last - head.first
                size -= head.bytes
            if tail is not None:
                self._waiting.appendleft(tail)
                break
        batch = MicroBatch(tuple(parts), reason)
        self._events -= batch.events
        self._bytes -= batch.bytes
        return batch


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
