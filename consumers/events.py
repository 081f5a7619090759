"""The classes that the stages pass on, with events as columns. Their fields can't be set."""

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from millstream.consumers.errors import OffsetsRewound
from millstream.consumers.record_headers import RecordHeaders
from millstream.consumers.record_types import Key, Partition, Position
from millstream.consumers.records import Records
from millstream.inference.executors.interface import Inputs, Tensors, join_rows, rows_between
from millstream.inference.model_id import ModelId
from millstream.inference.replaced import Replacements
from millstream.schemas.dead_letters import LetterModel
from millstream.schemas.packed import Packed, Texts, taken
from millstream.schemas.rollout_choices import RowChoices
from millstream.schemas.row_models import RowModels
from millstream.schemas.table import Table

Epochs = Mapping[Partition, int]
"""The epoch of each partition's assignment. The mapping never changes; a new assignment creates a new one."""

NextOffsets = dict[Partition, tuple[int, int]]
"""How far partitions are processed: partition -> (its epoch, the offset of the next record)."""


NEVER = np.iinfo(np.int64).max
"""A deadline that never comes, ms since the epoch."""


@dataclass(frozen=True, slots=True)
class FetchedBatch:
    """The records of one or more polls, as read."""

    records: Records
    epochs: Epochs
    arrived: float  # when the first of them was read, seconds on the monotonic clock
    ingest_time: int  # when the last of them was read, ms since the epoch
    rejection: "Rejection | None" = None  # None: decode them; otherwise reject them all


class Rejection(NamedTuple):
    """Why an event has no prediction. The event goes to the dead-letter topic."""

    reason: str  # a code, see docs/dead-letters.md
    error: str  # a sentence for people
    model: LetterModel | None = None  # that the event failed on, in a rollout


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """A block: the records of some polls as columns. Each record is an event, rejected, left out, or a tombstone."""

    epochs: Epochs
    arrived: float
    ingest_time: int
    partitions: Mapping[int, Partition]  # the records' partitions, by the number that `places` uses
    # One value per record:
    places: npt.NDArray[np.int64]  # the number of its partition
    offsets: npt.NDArray[np.int64]
    timestamps: npt.NDArray[np.int64]  # ms since the epoch; -1 where the record has none
    timestamp_types: npt.NDArray[np.int64]  # as Kafka numbers them: 0 none, 1 the producer's time, 2 the broker's
    keys: Sequence[Key]
    values: Sequence[bytes | None]
    headers: Mapping[int, RecordHeaders]  # by the record's row, ascending; only records with headers
    ends: npt.NDArray[np.int64]  # cumulated bytes of keys, values and headers, including this record
    # One value per event:
    good: npt.NDArray[np.int64]  # the row of its record, ascending
    ids: Texts
    event_times: npt.NDArray[np.int64]  # ms since the epoch
    deadlines: npt.NDArray[np.int64] | None  # ms since the epoch; later the event doesn't run. None: no deadlines
    costs: npt.NDArray[np.int64] | None  # cumulated costs, including this event; None: events have no cost
    tensors: Inputs
    features: Table | None  # the fields that predictions include, and what was looked up for shadows; None: neither
    invalid_deadlines: int  # number of events whose deadline header is not a number of ms; the header is ignored
    # Rejected records:
    rejected: Mapping[int, Rejection]  # by row, ascending
    # Rows, ascending:
    left_out: npt.NDArray[np.int64] = field(
        default_factory=lambda: np.empty(0, np.int64)
    )  # that `input.filter` leaves out
    unread: npt.NDArray[np.int64] = field(
        default_factory=lambda: np.empty(0, np.int64)
    )  # rejected, as it can't read them
    loads: npt.NDArray[np.int64] | None = None  # as `ends`, without records that are left out; None: `ends`
    replaced: Replacements = field(
        default_factory=Replacements
    )  # in the tensors, also in those of events that are rejected

    def partition(self, row: int) -> Partition:
        """The partition of a record."""
        return self.partitions[int(self.places[row])]

    @property
    def load_ends(self) -> npt.NDArray[np.int64]:
        """The cumulated bytes that count for the size of a batch."""
        return self.ends if self.loads is None else self.loads

    def is_of(self, partitions: Collection[Partition]) -> npt.NDArray[np.bool_]:
        """For each record, whether it belongs to one of these partitions."""
        return np.isin(self.places, [place for place, partition in self.partitions.items() if partition in partitions])


def _grown(sums: npt.NDArray[np.int64], start: int, stop: int) -> int:
    """What running sums grow by from `start` to `stop`."""
    return int(sums[stop - 1]) - (int(sums[start - 1]) if start else 0) if stop > start else 0


# `BatchSlice`, `MicroBatch` and `BatchResult` are tuples, because a frozen dataclass takes up to 3 us to create, and each batch
# needs several of them.
class BatchSlice(NamedTuple):
    """A range of a block's records, and the range of their events."""

    block: DecodedBatch
    start: int  # records[start:stop]
    stop: int
    first: int  # events[first:last]
    last: int

    @property
    def bytes(self) -> int:
        """Bytes of the keys, values and headers in the range."""
        return _grown(self.block.ends, self.start, self.stop)

    @property
    def load(self) -> int:
        """As `bytes`, without the records that are left out: what counts for the size of a batch."""
        return _grown(self.block.load_ends, self.start, self.stop)

    @property
    def cost(self) -> int:
        """The total cost of the range's events."""
        costs = self.block.costs
        return 0 if costs is None else _grown(costs, self.first, self.last)

    @property
    def all_events(self) -> bool:
        """Whether each record of the range is an event."""
        return self.last - self.first == self.stop - self.start

    def under(self, epochs: Epochs) -> "BatchSlice":
        """The range with a block that has only the epochs of partitions that these epochs have, too."""
        own = self.block.epochs
        if all(epochs.get(partition) == own.get(partition) for partition in self.block.partitions.values()):
            return self
        kept = {partition: epoch for partition, epoch in own.items() if epochs.get(partition) == epoch}
        return self._replace(block=replace(self.block, epochs=kept))

    @property
    def event_keys(self) -> Sequence[Key]:
        """The keys of the range's events."""
        keys = self.block.keys
        if self.all_events:
            return keys[self.start : self.stop]
        return taken(keys, self.block.good[self.first : self.last])

    def split(self, events: int) -> "tuple[BatchSlice, BatchSlice]":
        """The range up to its first so many events, and the rest. The records between two events belong to the first range."""
        at = self.first + events
        cut = int(self.block.good[at])
        return (
            BatchSlice(self.block, self.start, cut, self.first, at),
            BatchSlice(self.block, cut, self.stop, at, self.last),
        )

    def next_offsets(self) -> dict[Partition, int]:
        """For each partition in the range, the offset after its last record."""
        last = np.full(max(self.block.partitions) + 1, -1)
        np.maximum.at(last, self.block.places[self.start : self.stop], self.block.offsets[self.start : self.stop])
        return {self.block.partitions[place]: int(last[place]) + 1 for place in np.flatnonzero(last >= 0).tolist()}

    def rejected(self) -> dict[int, Rejection]:
        """The rejected records of the range, by row of the block, ascending."""
        return {row: why for row, why in self.block.rejected.items() if self.start <= row < self.stop}

    def left_out(self) -> npt.NDArray[np.int64]:
        """The rows of the range's records that `input.filter` leaves out, ascending."""
        found = self.block.left_out
        return found[found.searchsorted(self.start) : found.searchsorted(self.stop)] if len(found) else found


class MicroBatch(NamedTuple):
    """The events that run through the model together, and the records between them that are not events."""

    parts: tuple[BatchSlice, ...]
    reason: str  # why it was closed: size, bytes, cost, time or drain
    closed: float | None = None  # when, seconds on the monotonic clock; None: `reason` is drain
    is_cut: bool = False  # whether some of its events don't run, because their partitions have no epoch in their blocks

    @property
    def events(self) -> int:
        """The number of events."""
        events = 0
        for part in self.parts:  # called several times per batch: a generator would take twice as long
            events += part.last - part.first
        return events

    @property
    def records(self) -> int:
        """The number of records, events or not."""
        return sum(part.stop - part.start for part in self.parts)

    @property
    def bytes(self) -> int:
        """Bytes of the records' keys, values and headers."""
        return sum(part.bytes for part in self.parts)

    @property
    def cost(self) -> int:
        """The total cost of the events."""
        return sum(part.cost for part in self.parts)

    @property
    def arrived(self) -> float:
        """When the oldest record was read, seconds on the monotonic clock."""
        if len(self.parts) == 1:  # the usual batch; here and below, a generator would take longer than the rest
            return self.parts[0].block.arrived
        return min(part.block.arrived for part in self.parts)

    @property
    def position(self) -> Position:
        """The position of its first event, or of its first record if it has no event."""
        part = next((part for part in self.parts if part.last > part.first), self.parts[0])
        row = int(part.block.good[part.first]) if part.last > part.first else part.start
        return *part.block.partition(row), int(part.block.offsets[row])

    def under(self, epochs: Epochs) -> "MicroBatch":
        """The batch without the events whose partitions have other epochs than these, or none.

        Its records stay, but the blocks have no epoch for these partitions any more. So the events don't run, and nothing is
        written or committed for the partitions.
        """
        for part in self.parts:  # called for each batch
            if part.block.epochs is not epochs:
                break
        else:
            return self
        parts = tuple(part.under(epochs) for part in self.parts)
        return self._replace(parts=parts, is_cut=any(a is not b for a, b in zip(parts, self.parts, strict=True)))

    def left_out(self) -> npt.NDArray[np.int64]:
        """The rows of the events that don't run because the batch is cut, ascending."""
        if not self.is_cut:
            return np.empty(0, np.int64)
        run = [part.block.is_of(part.block.epochs)[part.block.good[part.first : part.last]] for part in self.parts]
        return np.flatnonzero(~np.concatenate(run))

    def deadlines(self) -> npt.NDArray[np.int64]:
        """The deadline of each event, ms since the epoch; `NEVER` if it has none."""
        return np.concatenate(
            [
                np.full(part.last - part.first, NEVER)
                if part.block.deadlines is None
                else part.block.deadlines[part.first : part.last]
                for part in self.parts
            ]
        )

    @property
    def timeless(self) -> bool:
        """Whether no event has a deadline."""
        if len(self.parts) == 1:
            return self.parts[0].block.deadlines is None
        return all(part.block.deadlines is None for part in self.parts)

    def expired(self, now: int) -> npt.NDArray[np.int64]:
        """The rows of events whose deadline is before `now` (ms since the epoch), ascending."""
        if self.timeless:
            return np.empty(0, np.int64)
        return np.flatnonzero(self.deadlines() < now)

    def last_deadline(self) -> int:
        """The latest deadline of its events, ms since the epoch; `NEVER` if an event has none."""
        if any(part.block.deadlines is None for part in self.parts if part.last > part.first):
            return NEVER
        return int(self.deadlines().max(initial=0))

    def keys(self) -> set[Hashable]:
        """The keys of its records, without null."""
        return {key for part in self.parts for key in part.block.keys[part.start : part.stop] if key is not None}

    def ids(self) -> Texts:
        """The IDs of its events."""
        return Texts.concat([part.block.ids[part.first : part.last] for part in self.parts])

    def event_times(self) -> npt.NDArray[np.int64]:
        """The times of its events, ms since the epoch."""
        return np.concatenate([part.block.event_times[part.first : part.last] for part in self.parts])

    def features(self, rows: npt.NDArray[np.int64], names: Sequence[str] | None = None) -> Table:
        """The kept fields of the events in these rows (at least one, ascending): those with these names, or all."""
        kept: list[Table] = []
        first = 0  # event of the part
        for part in self.parts:
            last = first + part.last - part.first
            own = rows[rows.searchsorted(first) : rows.searchsorted(last)]
            if len(own) and part.block.features is not None:
                table = part.block.features if names is None else part.block.features.select(names)
                kept.append(table.take(own - first + part.first))
            first = last
        return Table.concat(kept)

    def values(self, rows: npt.NDArray[np.int64]) -> Packed:
        """The values of the records of the events in these rows (at least one, ascending)."""
        found: list[Packed] = []
        first = 0  # event of the part
        for part in self.parts:
            last = first + part.last - part.first
            own = rows[rows.searchsorted(first) : rows.searchsorted(last)]
            if len(own):
                values = taken(part.block.values, part.block.good[own - first + part.first])
                if not isinstance(values, Packed):
                    values = Packed.of([value for value in values if value is not None])  # an event's is never None
                found.append(values)
            first = last
        return Packed.concat(found)

    def split(self, most: int) -> "list[MicroBatch]":
        """The batch as batches of at most so many events, in order."""
        batches: list[MicroBatch] = []
        parts: list[BatchSlice] = []
        room = most
        for whole in self.parts:
            part = whole
            while part.last - part.first > room:
                if room:
                    head, part = part.split(room)
                    parts.append(head)
                batches.append(self._replace(parts=tuple(parts)))
                parts, room = [], most
            parts.append(part)
            room -= part.last - part.first
        return [*batches, self._replace(parts=tuple(parts))]

    def tensors(self) -> Inputs:
        """The model's inputs, one row per event. They are views if the batch comes from one block."""
        if len(self.parts) == 1:
            part = self.parts[0]
            return rows_between(part.block.tensors, part.first, part.last)
        filled = [part for part in self.parts if part.last > part.first]
        return join_rows([rows_between(part.block.tensors, part.first, part.last) for part in filled])


def joined_parts(batches: Sequence[MicroBatch]) -> tuple[BatchSlice, ...]:
    """The ranges of all batches. Ranges of a block that follow each other are joined."""
    found: list[BatchSlice] = []
    for part in (part for batch in batches for part in batch.parts):
        last = found[-1] if found else None
        if last is not None and last.block is part.block and last.stop == part.start:
            found[-1] = BatchSlice(part.block, last.start, part.stop, last.first, part.last)
        else:
            found.append(part)
    return tuple(found)


class BatchResult(NamedTuple):
    """A micro-batch with its results."""

    number: int  # of the batch, in the order of submission: 0, 1, 2, ...
    batch: MicroBatch
    outputs: Tensors  # output name -> [len(rows), ...]
    rows: npt.NDArray[np.int64]  # rows of the events with outputs, ascending
    rejected: dict[int, Rejection]  # row of each event without outputs -> its rejection
    prediction_times: npt.NDArray[np.int64]  # one for each of `rows`, ms since the epoch
    models: tuple[ModelId, ...]  # that answered; empty only if no event has outputs
    answered_by: npt.NDArray[np.int64] | None = (
        None  # for each of `rows`, the index in `models`; None: all by the first one
    )
    seconds: float = 0.0  # that the model took
    variants: tuple[str, ...] | None = None  # of each of `models`, in a rollout
    choices: RowChoices | None = None  # for each of `rows`, in a rollout

    @property
    def row_models(self) -> RowModels:
        """The models that answered, for the encoders."""
        return RowModels(self.models, self.answered_by, self.variants, self.choices)


@dataclass(frozen=True, slots=True)
class Barrier:
    """Asks each stage to finish all events before it. The write thread then sets `done`."""

    done: Any  # threading.Event


ResultQueue = SimpleQueue[Sequence[BatchResult] | Barrier | OffsetsRewound | None]
"""Takes messages from the compute thread to the write thread. None ends the write thread."""
