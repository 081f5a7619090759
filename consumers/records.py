"""Records as read from Kafka, stored as columns: one for the keys, one for the values, one for the offsets, and so on."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt

from millstream.consumers.record_headers import RecordHeaders
from millstream.schemas.arrays import Ints
from millstream.schemas.packed import Chained, Packed, taken

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.consumers.record_types import HeaderList, Key, Partition, Position, Record

log = logging.getLogger(__name__)

CHAINED_BYTES = 1 << 16  # mean bytes of the parts from which it costs less to decode each by itself than to copy them


@dataclass(frozen=True, slots=True)
class Records:
    """Kafka records; each column has one value per record."""

    partitions: Sequence[Partition]  # the records' partitions; each has at least one record
    places: Ints  # each record's index into `partitions`
    offsets: Ints
    timestamps: Ints  # ms since the epoch; -1 if the record has none
    timestamp_types: Ints  # Kafka's numbers: 0 none, 1 the producer's time, 2 the broker's time
    keys: Sequence[Key]
    values: Sequence[bytes | None]
    headers: Mapping[int, RecordHeaders]  # by the record's row, ascending; only for records that have headers
    sizes: Ints  # bytes of each record's key, value and packed headers

    @classmethod
    def of(cls, records: Sequence[Record]) -> Records:
        """Build columns from record objects, which must all have the same type."""
        if not records:
            return NONE
        kind = type(records[0])  # `map` over the type's methods takes a quarter of a loop's time
        stamps = np.fromiter(chain.from_iterable(map(kind.timestamp, records)), np.int64, 2 * len(records))
        timestamp_types, timestamps = stamps.reshape(-1, 2).T.copy()
        pairs = list(zip(map(kind.topic, records), map(kind.partition, records), strict=True))
        place_of = {pair: place for place, pair in enumerate(dict.fromkeys(pairs))}
        headers = _headers_of(records)
        return cls(
            tuple(place_of),
            np.fromiter(map(place_of.__getitem__, pairs), np.int64, len(records)),
            np.fromiter(map(kind.offset, records), np.int64, len(records)),
            timestamps,
            timestamp_types,
            packed(keys := list(map(kind.key, records))),
            packed(values := list(map(kind.value, records))),
            headers,
            np.array(
                [
                    len(key or b"") + len(value or b"") + (len(headers[row].packed) if row in headers else 0)
                    for row, (key, value) in enumerate(zip(keys, values, strict=True))
                ],
                np.int64,
            ),
        )

    @classmethod
    def concat(cls, parts: Sequence[Records]) -> Records:
        """The records of all parts, in order."""
        if len(parts) == 1:
            return parts[0]
        place_of: dict[Partition, int] = {}
        for partition in chain.from_iterable(part.partitions for part in parts):
            place_of.setdefault(partition, len(place_of))
        renumbered = [np.array([place_of[own] for own in part.partitions], np.int64)[part.places] for part in parts]
        starts = accumulate(map(len, parts), initial=0)
        return cls(
            tuple(place_of),
            np.concatenate(renumbered),
            np.concatenate([part.offsets for part in parts]),
            np.concatenate([part.timestamps for part in parts]),
            np.concatenate([part.timestamp_types for part in parts]),
            _one([part.keys for part in parts]),
            _one([part.values for part in parts]),
            {start + row: own for start, part in zip(starts, parts, strict=False) for row, own in part.headers.items()},
            np.concatenate([part.sizes for part in parts]),
        )

    def __len__(self) -> int:
        """The number of records."""
        return len(self.offsets)

    @property
    def bytes(self) -> int:
        """Total bytes of the keys, values and headers."""
        return int(self.sizes.sum())

    def position(self, row: int) -> Position:
        """A record's topic, partition and offset."""
        return *self.partitions[self.places[row]], int(self.offsets[row])

    def counts(self) -> dict[Partition, int]:
        """The number of records of each partition."""
        return dict(
            zip(self.partitions, np.bincount(self.places, minlength=len(self.partitions)).tolist(), strict=True)
        )

    def firsts(self) -> dict[Partition, int]:
        """The offset of each partition's first record."""
        return {
            partition: int(self.offsets[np.argmax(self.places == place)])
            for place, partition in enumerate(self.partitions)
        }

    def where(self, chosen: Callable[[Partition], bool]) -> Records:
        """The records of the chosen partitions."""
        return self.take(np.array([chosen(partition) for partition in self.partitions], np.bool_)[self.places])

    def take(self, chosen: npt.NDArray[np.bool_]) -> Records:
        """The chosen records; `chosen` has one value per record."""
        rows = np.flatnonzero(chosen)
        return self if len(rows) == len(self) else self.take_rows(rows)

    def halves(self) -> tuple[Records, Records]:
        """The first half of the records, and the rest."""
        first, second = np.array_split(np.arange(len(self)), 2)
        return self.take_rows(first), self.take_rows(second)

    def take_rows(self, rows: Ints) -> Records:
        """Copy these records; `rows` are ascending."""
        left, places = np.unique(self.places[rows], return_inverse=True)
        return Records(
            tuple(self.partitions[place] for place in left.tolist()),
            places,
            self.offsets[rows],
            self.timestamps[rows],
            self.timestamp_types[rows],
            taken(self.keys, rows),
            taken(self.values, rows),
            {place: self.headers[row] for place, row in enumerate(rows.tolist()) if row in self.headers}
            if self.headers
            else {},
            self.sizes[rows],
        )


def _headers_of(records: Sequence[Record]) -> dict[int, RecordHeaders]:
    """The headers by the record's row, without those that confluent-kafka can't return because a name is not UTF-8."""
    headers: list[HeaderList | None] = []
    unreadable: list[Record] = []
    # Call `headers` only once per record: after an error, confluent-kafka 2.16 returns a list with a null pointer
    # at the next call, which crashes Python.
    each = map(type(records[0]).headers, records)
    while len(headers) < len(records):
        try:
            headers.extend(each)
        except (SystemError, UnicodeDecodeError):
            unreadable.append(records[len(headers)])
            headers.append(None)
    if unreadable:
        first = unreadable[0]
        log.warning(
            "%d records are read without their headers, because a header's name is not UTF-8; the first is at offset %d of %s/%d",
            *(len(unreadable), first.offset(), first.topic(), first.partition()),
        )
    return {row: RecordHeaders.of(own) for row, own in enumerate(headers) if own}


def packed(strings: Sequence[bytes | None]) -> Sequence[bytes | None]:
    """The strings in one buffer; `strings` itself if one of them is null."""
    return strings if None in strings else Packed.of(cast("Sequence[bytes]", strings))


def rows_in(headers: Mapping[int, RecordHeaders], rows: Ints) -> Ints:
    """Which of these ascending rows have headers: their indices in `rows`, ascending."""
    if len(rows) < len(headers):
        return np.flatnonzero([row in headers for row in rows.tolist()])
    have = np.fromiter(headers, np.int64, len(headers))
    places = rows.searchsorted(have)
    found = places < len(rows)
    found[found] = rows[places[found]] == have[found]
    return places[found]


def _one(parts: Sequence[Sequence[bytes | None]]) -> Sequence[bytes | None]:
    together = [part for part in parts if isinstance(part, Packed)]
    if len(together) < len(parts):
        return list(chain.from_iterable(parts))
    size = sum(int(part.lengths.sum()) for part in together)
    return Chained(together) if size >= CHAINED_BYTES * len(parts) else Packed.concat(together)


_NO_INTS = np.empty(0, np.int64)
NONE = Records((), _NO_INTS, _NO_INTS, _NO_INTS, _NO_INTS, (), (), {}, _NO_INTS)
