"""The micro-batching policy: pure; time comes in as an argument."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from millstream.consumers.events import BatchSlice, DecodedBatch, MicroBatch
from millstream.consumers.flow.batch_window import BatchWindow

NO_LIMIT = 1 << 62


@dataclass(frozen=True, slots=True)
class Limits:
    """When a micro-batch is closed."""

    max_events: int
    max_bytes: int  # of the records' keys, values and headers; one record larger than this is a batch of its own
    max_wait: float  # seconds since its oldest event was read
    max_cost: int | None = None  # of its events' costs; one event that costs more is a batch of its own
    target_p99: float | None = (
        None  # seconds from being read to the result, for which a batch waits less than `max_wait`
    )


class Batcher:
    """Closes micro-batches by count, bytes, cost and the age of the oldest event, in arrival order and across partitions.

    Records that are no events (refused, tombstones) ride along in their place, so that a batch covers every record read up
    to its last and its offsets can be committed as one. Where topics have weights, each has a queue of its own, and what they
    get of the batches under backlog is as their weights are: start-time fair queueing (Goyal, Vin and Cheng, 1996).
    """

    def __init__(
        self, limits: Limits, weights: Mapping[str, float] | None = None, *, window: BatchWindow | None = None
    ) -> None:
        """Args:
        limits: when a batch is closed.
        weights: by topic; then each block holds records of one topic only. None: all wait in one queue.
        window: how long one waits for more; told of what comes by its owner. None: `max_wait`.
        """
        self._limits = limits
        self._max_cost = NO_LIMIT if limits.max_cost is None else limits.max_cost
        self._window = window or BatchWindow(limits.max_wait)
        self._weights = weights or {}
        self._waiting: dict[str, deque[BatchSlice]] = {}  # by topic, those with anything in them
        self._served: dict[str, float] = {}  # records that left, over the topic's weight
        self._events = 0
        self._bytes = 0
        self._cost = 0

    def add(self, block: DecodedBatch) -> None:
        """Take the records of a block."""
        rows = BatchSlice(block, 0, len(block.offsets), 0, len(block.good))
        topic = block.partition(0)[0] if self._weights else ""
        if topic not in self._waiting:
            # One that comes back has no claim for the time in which it wanted nothing.
            least = min((self._served[other] for other in self._waiting), default=0.0)
            self._served[topic] = max(self._served.get(topic, 0.0), least)
            self._waiting[topic] = deque()
        self._waiting[topic].append(rows)
        self._events += len(block.good)
        self._bytes += rows.bytes
        self._cost += rows.cost

    @property
    def max_events(self) -> int:
        """Events that fill a batch."""
        return self._limits.max_events

    def due(self, undecoded: float | None = None) -> float | None:
        """When the next batch closes by age, seconds on the monotonic clock; None where nothing waits.

        Args:
            undecoded: when the oldest of the records was read that are not added yet; None: there are none. They wait for the
                same time, for one block of many records is cheaper to decode than many blocks of one.
        """
        oldest = min((queue[0].block.arrived for queue in self._waiting.values()), default=undecoded)
        return None if oldest is None else self._window.closes(oldest)

    def take(self, now: float) -> MicroBatch | None:
        """The next closed batch, or None where none is closed yet."""
        if self._events >= self._limits.max_events:
            return self._cut("size", now)
        if self._bytes >= self._limits.max_bytes:
            return self._cut("bytes", now)
        if self._cost >= self._max_cost:
            return self._cut("cost", now)
        due = self.due()
        return self._cut("time", now) if due is not None and now >= due else None

    def drain(self) -> MicroBatch | None:
        """The next batch, closed or not, or None where nothing waits."""
        return self._cut("drain", None) if self._waiting else None

    def _cut(self, reason: str, now: float | None) -> MicroBatch:
        parts: list[BatchSlice] = []
        room = _Room(self._limits.max_events, self._limits.max_bytes, self._max_cost)
        while self._waiting and not room.full:
            topic = min(self._waiting, key=self._served.__getitem__)
            queue = self._waiting[topic]
            rows = queue.popleft()
            head, tail = _split(rows, room, self._turn(topic))
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
        batch = MicroBatch(tuple(parts), reason, now)
        if now is not None:
            self._window.note_closed(now)
        self._events -= batch.events
        self._bytes -= batch.bytes
        self._cost -= batch.cost
        return batch

    def _turn(self, topic: str) -> int:
        """Most events that the topic gives before the next one has its turn."""
        if len(self._waiting) == 1:
            return self._limits.max_events
        total = sum(self._weights[other] for other in self._waiting)
        return max(int(self._limits.max_events * self._weights[topic] / total), 1)


class _Room:
    """What still fits into a batch."""

    def __init__(self, events: int, size: int, cost: int) -> None:
        self.events = events
        self.bytes = size
        self.cost = cost
        self.no_record = True  # so far: then one record fits whatever its size
        self.no_event = True  # so far: then one event fits whatever it costs

    @property
    def full(self) -> bool:
        return self.events <= 0 or self.bytes <= 0 or self.cost <= 0

    def take(self, rows: BatchSlice) -> None:
        self.events -= rows.last - rows.first
        self.bytes -= rows.bytes
        self.cost -= rows.cost
        self.no_record = False
        self.no_event = self.no_event and rows.last == rows.first


def _split(rows: BatchSlice, room: _Room, turn: int) -> tuple[BatchSlice | None, BatchSlice | None]:
    """As many of `rows` as there is room for, at most `turn` events, and the rest."""
    block = rows.block
    stop = min(_stop_by_events(rows, min(room.events, turn)), _stop_by_cost(rows, room))
    before = int(block.ends[rows.start - 1]) if rows.start else 0
    if stop > rows.start and int(block.ends[stop - 1]) - before > room.bytes:
        fits = int(block.ends.searchsorted(before + room.bytes, side="right"))
        stop = max(fits, rows.start + room.no_record)
    if stop == rows.stop:
        return rows, None
    if stop == rows.start:
        return None, rows
    # A search where none is needed would let go of Python's lock.
    middle = rows.first + stop - rows.start if rows.all_events else int(block.good.searchsorted(stop))
    return (
        BatchSlice(block, rows.start, stop, rows.first, middle),
        BatchSlice(block, stop, rows.stop, middle, rows.last),
    )


def _stop_by_events(rows: BatchSlice, events: int) -> int:
    """The record after the last one that fits: that of the last event, what follows it waits with the next."""
    return rows.stop if rows.last - rows.first <= events else int(rows.block.good[rows.first + events - 1]) + 1


def _stop_by_cost(rows: BatchSlice, room: _Room) -> int:
    """The record of the first event that costs too much."""
    costs = rows.block.costs
    if costs is None or rows.cost <= room.cost:
        return rows.stop
    before = int(costs[rows.first - 1]) if rows.first else 0
    fits = int(costs.searchsorted(before + room.cost, side="right"))
    fits = max(fits, rows.first + room.no_event)
    return rows.stop if fits >= rows.last else int(rows.block.good[fits])
