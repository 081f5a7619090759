"""Cuts blocks into micro-batches. Pure: times are arguments."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from millstream.consumers.events import BatchSlice, DecodedBatch, MicroBatch
from millstream.consumers.flow.batch_window import BatchWindow
from millstream.schemas.arrays import Ints

NO_LIMIT = 1 << 62


@dataclass(frozen=True, slots=True)
class Limits:
    """When a micro-batch is closed."""

    max_events: int
    max_bytes: int  # of the records' keys, values and headers; a larger record is a batch of its own
    max_wait: float  # seconds since its oldest event was read
    max_cost: int | None = None  # sum of the events' costs; an event with a higher cost is a batch of its own
    target_p99: float | None = None  # seconds from reading to result; to meet it, a batch waits less than `max_wait`


class Batcher:
    """Closes micro-batches by count, bytes, cost and the age of the oldest event. A topic's events stay in their order.

    A batch covers records that are not events too (rejected records and tombstones), so that its offsets can be committed
    without a gap. If topics have weights, each topic has its own queue. Under backlog, they share the batches in proportion to
    their weights, by start-time fair queueing (Goyal, Vin and Cheng, 1996).
    """

    def __init__(
        self, limits: Limits, weights: Mapping[str, float] | None = None, *, window: BatchWindow | None = None
    ) -> None:
        """Args:
        limits: when a batch is closed.
        weights: by topic; each block must then hold records of one topic only. None: all topics share one queue.
        window: decides how long a batch waits for more events. None: a window of `max_wait`.
        """
        self._limits = limits
        self._max_cost = NO_LIMIT if limits.max_cost is None else limits.max_cost
        self._window = window or BatchWindow(limits.max_wait)
        self._weights = weights or {}
        self._waiting: dict[str, deque[BatchSlice]] = {}  # queues that are not empty, by topic
        self._served: dict[str, float] = {}  # by topic: records that left its queue, divided by its weight
        self._events = 0
        self._bytes = 0
        self._cost = 0

    def add(self, block: DecodedBatch) -> None:
        """Append a block."""
        rows = BatchSlice(block, 0, len(block.offsets), 0, len(block.good))
        topic = block.partition(0)[0] if self._weights else ""
        if topic not in self._waiting:
            # A topic whose queue was empty gets no extra share for that time.
            least = min((self._served[other] for other in self._waiting), default=0.0)
            self._served[topic] = max(self._served.get(topic, 0.0), least)
            self._waiting[topic] = deque()
        self._waiting[topic].append(rows)
        self._events += len(block.good)
        self._bytes += rows.load
        self._cost += rows.cost

    @property
    def max_events(self) -> int:
        """Events that fill a batch."""
        return self._limits.max_events

    def due(self, undecoded: float | None = None) -> float | None:
        """When the next batch closes by age, in seconds on the monotonic clock; None if nothing waits.

        Args:
            undecoded: when the oldest record that is not decoded yet was read; None: there is none. It counts as well, because
                records are decoded only when their batch is due.
        """
        oldest = min((queue[0].block.arrived for queue in self._waiting.values()), default=undecoded)
        return None if oldest is None else self._window.closes(oldest)

    def take(self, now: float, together: int = 1) -> MicroBatch | None:
        """The next batch that is due, or up to `together` full ones as one; None if none is due.

        Each of them is within the bytes and the cost that one may have.
        """
        if self._events >= self._limits.max_events:
            return self._cut("size", now, self._full(together))
        if self._bytes >= self._limits.max_bytes:
            return self._cut("bytes", now)
        if self._cost >= self._max_cost:
            return self._cut("cost", now)
        due = self.due()
        return self._cut("time", now) if due is not None and now >= due else None

    def _full(self, most: int) -> int:
        """How many full batches, up to `most`, may be taken together: those of the first block, as they are views of its rows."""
        if len(self._waiting) > 1:  # then topics have turns
            return 1
        (queue,) = self._waiting.values()
        rows, size = queue[0], self._limits.max_events
        most = min((rows.last - rows.first) // size, most)
        if most <= 1:
            return 1
        lasts = rows.first + size * np.arange(1, most + 1)  # the event after each batch
        fit = _parts_of(rows.block.load_ends, rows.block.good[lasts - 1] + 1, rows.start) <= self._limits.max_bytes
        if rows.block.costs is not None:
            fit &= _parts_of(rows.block.costs, lasts, rows.first) <= self._max_cost
        return most if fit.all() else max(int(fit.argmin()), 1)

    def drain(self) -> MicroBatch | None:
        """The next batch, due or not; None if nothing waits."""
        return self._cut("drain", None) if self._waiting else None

    def _cut(self, reason: str, now: float | None, together: int = 1) -> MicroBatch:
        """Cut a batch, or this many full ones as one."""
        most, size, cost = (
            limit * together for limit in (self._limits.max_events, self._limits.max_bytes, self._max_cost)
        )
        parts: list[BatchSlice] = []
        room = _Room(most, size, cost)
        while self._waiting and not room.full:
            topic = min(self._waiting, key=self._served.__getitem__)
            queue = self._waiting[topic]
            rows = queue.popleft()
            head, tail = _split(rows, room, self._turn(topic, most))
            if tail is not None:
                queue.appendleft(tail)
            if not queue:
                del self._waiting[topic]
            if head is None:
                break
            parts.append(head)
            room.take(head)
            self._served[topic] += (head.stop - head.start) / self._weights.get(topic, 1.0)
            if tail is not None and len(self._waiting) == 1:
                break
        if now is not None:
            self._window.note_closed(now)
        self._events -= most - room.events
        self._bytes -= size - room.bytes
        self._cost -= cost - room.cost
        return MicroBatch(tuple(parts), reason, now)

    def _turn(self, topic: str, most: int) -> int:
        """The number of events that the topic may add to a batch of `most` events before another topic has its turn."""
        if len(self._waiting) == 1:
            return most
        total = sum(self._weights[other] for other in self._waiting)
        return max(int(most * self._weights[topic] / total), 1)


class _Room:
    """The room that is left in a batch."""

    def __init__(self, events: int, size: int, cost: int) -> None:
        self.events = events
        self.bytes = size
        self.cost = cost
        self.no_record = True  # still empty: one record fits, whatever its size
        self.no_event = True  # no event yet: one event fits, whatever its cost

    @property
    def full(self) -> bool:
        return self.events <= 0 or self.bytes <= 0 or self.cost <= 0

    def take(self, rows: BatchSlice) -> None:
        self.events -= rows.last - rows.first
        self.bytes -= rows.load
        self.cost -= rows.cost
        self.no_record = False
        self.no_event = self.no_event and rows.last == rows.first


def _split(rows: BatchSlice, room: _Room, turn: int) -> tuple[BatchSlice | None, BatchSlice | None]:
    """Split `rows` into the part that fits, of at most `turn` events, and the rest."""
    block = rows.block
    stop = min(_stop_by_events(rows, min(room.events, turn)), _stop_by_cost(rows, room))
    loads = block.load_ends
    before = int(loads[rows.start - 1]) if rows.start else 0
    if stop > rows.start and int(loads[stop - 1]) - before > room.bytes:
        fits = int(loads.searchsorted(before + room.bytes, side="right"))
        stop = max(fits, rows.start + room.no_record)
    if stop == rows.stop:
        return rows, None
    if stop == rows.start:
        return None, rows
    # A search that isn't needed is avoided: numpy would release the GIL for it.
    middle = rows.first + stop - rows.start if rows.all_events else int(block.good.searchsorted(stop))
    return (
        BatchSlice(block, rows.start, stop, rows.first, middle),
        BatchSlice(block, stop, rows.stop, middle, rows.last),
    )


def _parts_of(sums: Ints, stops: Ints, start: int) -> Ints:
    """What running sums grow by in consecutive ranges: from `start` to the first stop, from there to the second one, etc."""
    return np.diff(sums[stops - 1], prepend=sums[start - 1] if start else 0)


def _stop_by_events(rows: BatchSlice, events: int) -> int:
    """The row after the last event that fits. Records that follow it and are not events go with the next batch."""
    return rows.stop if rows.last - rows.first <= events else int(rows.block.good[rows.first + events - 1]) + 1


def _stop_by_cost(rows: BatchSlice, room: _Room) -> int:
    """The row of the first event that exceeds the cost."""
    costs = rows.block.costs
    if costs is None or rows.cost <= room.cost:
        return rows.stop
    before = int(costs[rows.first - 1]) if rows.first else 0
    fits = int(costs.searchsorted(before + room.cost, side="right"))
    fits = max(fits, rows.first + room.no_event)
    return rows.stop if fits >= rows.last else int(rows.block.good[fits])
