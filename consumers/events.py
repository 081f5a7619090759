"""What travels between the stages: plain frozen records, events as columns."""

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from millstream.consumers.errors import OffsetsRewound
from millstream.consumers.record_headers import RecordHeaders
from millstream.consumers.record_types import Key, Partition, Position
from millstream.consumers.records import Records
from millstream.inference.executors.interface import Inputs, Tensors, join_rows, rows_between
from millstream.schemas.packed import Texts, taken
from millstream.schemas.table import Table

Epochs = Mapping[Partition, int]
"""The assignment that a record was read under: partition -> the number of that assignment. Replaced, never changed."""

NextOffsets = dict[Partition, tuple[int, int]]
"""How far partitions are done: partition -> (its epoch, the offset of the next record)."""


NEVER = np.iinfo(np.int64).max
"""A deadline that never comes, ms since the epoch."""


@dataclass(frozen=True, slots=True)
class FetchedBatch:
    """Records of one or more polls, as read."""

    records: Records
    epochs: Epochs
    arrived: float  # seconds on the monotonic clock, when the first of them was read
    ingest_time: int  # ms since the epoch, the same moment
    rejection: "Rejection | None" = None  # why none of them is to be decoded


class Rejection(NamedTuple):
    """Why an event has no prediction. The event goes to the dead-letter topic."""

    reason: str  # a code, see docs/dead-letters.md
    error: str  # a sentence for people


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """The records of some polls as columns: those that became events, those rejected with reasons, tombstones with neither."""

    epochs: Epochs
    arrived: float
    ingest_time: int
    partitions: Mapping[int, Partition]  # that the records are of, each by the number that stands for it here
    # One value a record:
    places: npt.NDArray[np.int64]  # number of its partition
    offsets: npt.NDArray[np.int64]
    timestamps: npt.NDArray[np.int64]  # ms since the epoch; -1 where the record has none
    timestamp_types: npt.NDArray[np.int64]  # as Kafka numbers them: 0 none, 1 the producer's time, 2 the broker's
    keys: Sequence[Key]
    values: Sequence[bytes | None]
    headers: Mapping[int, RecordHeaders]  # by the record's row, ascending; only of records that have any
    ends: npt.NDArray[np.int64]  # bytes of keys, values and headers up to and including each record's
    # One value an event:
    good: npt.NDArray[np.int64]  # its record, ascending
    ids: Texts
    event_times: npt.NDArray[np.int64]  # ms since the epoch
    deadlines: npt.NDArray[np.int64] | None  # ms since the epoch, after which it need not run; None: no event has one
    costs: npt.NDArray[np.int64] | None  # of the events up to and including each; None: they have none
    tensors: Inputs
    features: Table | None  # the fields that shadows take, where there are any
    invalid_deadlines: int  # number of events whose deadline header is not a number of ms; the header is ignored
    # The others:
    rejected: Mapping[int, Rejection]  # by row, ascending

    def partition(self, row: int) -> Partition:
        """The partition of a record."""
        return self.partitions[int(self.places[row])]

    def is_of(self, partitions: Collection[Partition]) -> npt.NDArray[np.bool_]:
        """Of each record, whether it is of one of these partitions."""
        return np.isin(self.places, [place for place, partition in self.partitions.items() if partition in partitions])


@dataclass(frozen=True, slots=True)
class BatchSlice:
    """A range of a block's records and of its events."""

    block: DecodedBatch
    start: int  # records start to stop
    stop: int
    first: int  # good[first:last]
    last: int

    @property
    def bytes(self) -> int:
        """Bytes of the keys, values and headers in the range."""
        ends = self.block.ends
        return (
            int(ends[self.stop - 1]) - (int(ends[self.start - 1]) if self.start else 0) if self.stop > self.start else 0
        )

    @property
    def cost(self) -> int:
        """What the range's events cost in all."""
        costs = self.block.costs
        if costs is None or self.last == self.first:
            return 0
        return int(costs[self.last - 1]) - (int(costs[self.first - 1]) if self.first else 0)

    @property
    def all_events(self) -> bool:
        """Whether each record of the range is an event."""
        return self.last - self.first == self.stop - self.start

    @property
    def event_keys(self) -> Sequence[Key]:
        """The keys of the range's events."""
        keys = self.block.keys
        if self.all_events:
            return keys[self.start : self.stop]
        return taken(keys, self.block.good[self.first : self.last])

    def next_offsets(self) -> dict[Partition, int]:
        """The offset behind the last record of each partition in the range."""
        last = np.full(max(self.block.partitions) + 1, -1)
        np.maximum.at(last, self.block.places[self.start : self.stop], self.block.offsets[self.start : self.stop])
        return {self.block.partitions[place]: int(last[place]) + 1 for place in np.flatnonzero(last >= 0).tolist()}

    def rejected(self) -> dict[int, Rejection]:
        """The rejected records of the range, by their rows in the block, ascending."""
        return {row: why for row, why in self.block.rejected.items() if self.start <= row < self.stop}


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Events that run through a model in one call, and the records around them that don't."""

    parts: tuple[BatchSlice, ...]
    reason: str  # why it was closed: size, bytes, cost, time or drain
    closed: float | None = None  # when, seconds on the monotonic clock; None where drained

    @property
    def events(self) -> int:
        """Events to run."""
        events = 0
        for part in self.parts:  # asked several times a batch: a generator takes twice as long
            events += part.last - part.first
        return events

    @property
    def records(self) -> int:
        """Records covered, good or not."""
        return sum(part.stop - part.start for part in self.parts)

    @property
    def bytes(self) -> int:
        """Bytes of their keys, values and headers."""
        return sum(part.bytes for part in self.parts)

    @property
    def cost(self) -> int:
        """What its events cost."""
        return sum(part.cost for part in self.parts)

    @property
    def arrived(self) -> float:
        """When the oldest was read, seconds on the monotonic clock."""
        return min(part.block.arrived for part in self.parts)

    @property
    def position(self) -> Position:
        """Where its first event was read, or its first record if it has no event."""
        part = next((part for part in self.parts if part.last > part.first), self.parts[0])
        row = int(part.block.good[part.first]) if part.last > part.first else part.start
        return *part.block.partition(row), int(part.block.offsets[row])

    def deadlines(self) -> npt.NDArray[np.int64]:
        """When each event need not run any more, ms since the epoch; a time that never comes where it has no deadline."""
        return np.concatenate(
            [
                np.full(part.last - part.first, NEVER)
                if part.block.deadlines is None
                else part.block.deadlines[part.first : part.last]
                for part in self.parts
            ]
        )

    def expired(self, now: int) -> npt.NDArray[np.int64]:
        """Events whose deadline is before `now`, ms since the epoch; ascending."""
        if all(part.block.deadlines is None for part in self.parts):
            return np.empty(0, np.int64)
        return np.flatnonzero(self.deadlines() < now)

    def keys(self) -> set[Hashable]:
        """The keys of its records."""
        return {key for part in self.parts for key in part.block.keys[part.start : part.stop] if key is not None}

    def ids(self) -> Texts:
        """Its events' ids."""
        return Texts.concat([part.block.ids[part.first : part.last] for part in self.parts])

    def event_times(self) -> npt.NDArray[np.int64]:
        """Its events' times, ms since the epoch."""
        return np.concatenate([part.block.event_times[part.first : part.last] for part in self.parts])

    def tensors(self) -> Inputs:
        """The model's inputs, one row an event; views where the batch comes from one block."""
        filled = [part for part in self.parts if part.last > part.first]
        return join_rows([rows_between(part.block.tensors, part.first, part.last) for part in filled])


@dataclass(frozen=True, slots=True)
class BatchResult:
    """A micro-batch with what the model said."""

    number: int  # its place in the order of departures, from 0 without a gap
    batch: MicroBatch
    outputs: Tensors  # output name -> [len(rows), ...]
    rows: npt.NDArray[np.int64]  # events of the batch that have an output, ascending
    rejected: dict[int, Rejection]  # event of the batch -> why it has none
    prediction_times: npt.NDArray[np.int64]  # of each of the rows, ms since the epoch
    seconds: float = 0.0  # in the model


@dataclass(frozen=True, slots=True)
class Barrier:
    """Asks each stage to finish all that came before it; the last one answers by `done`."""

    done: Any  # threading.Event


ResultQueue = SimpleQueue[Sequence[BatchResult] | Barrier | OffsetsRewound | None]
"""What goes from the computing stage to the writing one; None ends that."""
