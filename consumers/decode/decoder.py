"""Turns records into columns: event IDs, times and the model's tensors. Rejects records that can't be events, with reasons."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np

from millstream.consumers.decode.event_filter import EventFilter
from millstream.consumers.decode.event_times import ISO8601, TimeFormat, advice, event_times, shown
from millstream.consumers.decode.feature_lookup import EventPart, ReadEvents, with_features
from millstream.consumers.decode.replaced_values import Replaceable
from millstream.consumers.events import NEVER, DecodedBatch, FetchedBatch, Rejection
from millstream.consumers.record_headers import RecordHeaders
from millstream.consumers.records import Records, rows_in
from millstream.inference.executors.interface import Inputs, join_rows
from millstream.inference.features import Features, to_tensors
from millstream.inference.replaced import Replacements, Source, absent_in
from millstream.inference.signature import Signature
from millstream.schemas.arrays import Ints, Mask
from millstream.schemas.column import Column, ListColumn, NumberColumn, StringColumn
from millstream.schemas.decoded import BadRecord, Decoder, Part, rows_named
from millstream.schemas.ids import ids_of, place_ids
from millstream.schemas.packed import Packed, Texts
from millstream.schemas.table import Table
from millstream.schemas.times import LIKE_SECONDS, YEARS, in_calendar

if TYPE_CHECKING:
    from millstream.inference.feature_store.lookup import Lookup

log = logging.getLogger(__name__)

MAX_COST = float(1 << 40)  # of one event
MAX_DEADLINE_DIGITS = 19  # those of 2^63


class Fill(Protocol):
    """Turns a table of events into tensors, as `to_tensors` does."""

    def __call__(self, table: Table, *, allow_nan: bool, event_times: Ints) -> Features:
        """See `to_tensors`."""
        ...


@dataclass(frozen=True, slots=True)
class EventFields:
    """The paths in events that Millstream itself uses."""

    event_id: str | None  # None: "<topic>-<partition>-<offset>"
    event_time: str | None  # None: the record's timestamp is the event time
    time_format: TimeFormat = "milliseconds"  # of the values of `event_time`
    max_age: int | None = None  # ms after the event time, after which an event expires
    deadline_header: str | None = None  # name of the record header with the deadline, ms since the epoch
    cost: str | None = None  # a field with a number, or with a list or text whose length is the cost
    event_filter: EventFilter | None = None  # which events are read; None: all


@dataclass(frozen=True, slots=True)
class _Events:
    """The events of some records: one value per event in each column."""

    rows: Ints  # the rows of their records, ascending
    ids: Texts | None  # None: events have no ID field
    times: Ints  # ms since the epoch
    costs: Ints | None  # None: events have no cost
    features: Table | None  # the fields that predictions include, and what was looked up for shadows; None: neither
    tensors: Inputs
    replaced: Replacements

    def kept(self, fitting: Ints) -> "_Events":
        """Keep only these events, ascending. The tensors have no others already."""
        return _Events(
            self.rows[fitting],
            None if self.ids is None else self.ids.take(fitting),
            self.times[fitting],
            None if self.costs is None else self.costs[fitting],
            None if self.features is None else self.features.take(fitting),
            self.tensors,
            self.replaced,
        )


class BlockDecoder:
    """Turns records into a `DecodedBatch`."""

    def __init__(
        self,
        decoder: Decoder,
        fields: EventFields,
        signature: Signature,
        *,
        allow_nan: bool,
        keep: Sequence[str] = (),
        lookups: "Sequence[Lookup]" = (),
        replaceable: Mapping[Source, Replaceable] | None = None,
        fill: Fill | None = None,
    ) -> None:
        """Args:
        decoder: reads the values.
        fields: the fields that Millstream itself uses.
        signature: the primary's, whose tensors are filled.
        allow_nan: whether a feature may be NaN or infinite.
        keep: the fields that predictions include, and the columns of look-ups that shadows need.
        lookups: add the features of a store to the events.
        replaceable: the fields whose values may be replaced; None: there are none.
        fill: fills the tensors; None: `to_tensors`.
        """
        self.lookups = lookups
        self.replaceable = replaceable or {}
        self._own = [source for source in self.replaceable if source.option not in {"missing", "unknown"}]
        self._decoder = decoder
        self._filter = fields.event_filter
        self._fields = fields
        self._fill = fill or partial(to_tensors, inputs=signature.inputs)
        self._allow_nan = allow_nan
        self._keep = list(keep)
        self._told_of_seconds = False

    def decode(self, polled: FetchedBatch) -> DecodedBatch:
        """Decode all records of `polled`, in one call for all three steps.

        Raises:
            SchemaUnavailable: the schemas can't be read now. Decode the same records again later.
            FeatureStoreUnavailable: the feature store doesn't answer now. The same.
        """
        return self.block(polled, with_features(self.read(polled), self.lookups))

    def read(self, polled: FetchedBatch) -> ReadEvents:
        """The first step: decode the values, and find each event's ID and time.

        Raises:
            SchemaUnavailable: the schemas can't be read now. Read the same records again later.
        """
        rejected: dict[int, Rejection] = {}
        rows, values = _without_tombstones(polled.records.values)
        if polled.rejection:
            rejected |= dict.fromkeys(rows.tolist(), polled.rejection)
            rows, values = rows[:0], Packed.of([])
        split, left_out, unread = None, rows[:0], rows[:0]
        if self._filter is not None:
            with rows_named(rows):
                split = self._filter.split(values)
            left_out, unread = rows[split.left_out], self._reject(rows, split.bad, rejected)
            rows, values = rows[split.passed], values.take(split.passed)
        parts: list[EventPart] = []
        for part in self._parts(rows, values, rejected):
            (table, kept), times = self._with_times(self._with_ids(part, rejected), polled.records.timestamps, rejected)
            parts.append(EventPart(table, kept, times))
        if self._filter is not None and split is not None:
            self._filter.note(split)
        return ReadEvents(parts, rejected, left_out, unread)

    def block(self, polled: FetchedBatch, read: ReadEvents) -> DecodedBatch:
        """The last step: fill the tensors.

        Args:
            polled: the records.
            read: their events, with the columns of all look-ups (see `with_features`).
        """
        records = polled.records
        partitions = dict(enumerate(records.partitions))
        rejected = dict(read.rejected)
        events = _together([self._events(part, rejected) for part in read.parts])
        rows = events.rows
        deadlines, invalid_deadlines = self._deadlines(events.times, records.headers, rows)
        return DecodedBatch(
            polled.epochs,
            polled.arrived,
            polled.ingest_time,
            partitions=partitions,
            places=records.places,
            offsets=records.offsets,
            timestamps=records.timestamps,
            timestamp_types=records.timestamp_types,
            keys=_without_objects(records.keys),
            values=_without_objects(records.values),
            headers=records.headers,
            ends=records.sizes.cumsum(),
            good=rows,
            ids=place_ids(partitions, records.places[rows], records.offsets[rows])
            if events.ids is None
            else events.ids,
            event_times=events.times,
            deadlines=deadlines,
            invalid_deadlines=invalid_deadlines,
            costs=None if events.costs is None else events.costs.cumsum(),
            tensors=events.tensors,
            features=events.features,
            rejected=dict(sorted(rejected.items())),
            left_out=read.left_out,
            unread=read.unread,
            loads=_loads(records, read.left_out),
            replaced=events.replaced,
        )

    def _parts(self, rows: Ints, values: Packed, rejected: dict[int, Rejection]) -> list[Part]:
        """Decode the values of these records into parts. Adds records that can't be decoded to `rejected`."""
        with rows_named(rows):
            decoded = self._decoder.decode(values)
        self._reject(rows, decoded.bad, rejected)
        return [Part(part.table, rows[part.rows]) for part in decoded.parts]

    def _reject(self, rows: Ints, bad: Sequence[BadRecord], rejected: dict[int, Rejection]) -> Ints:
        """Add records that can't be decoded to `rejected`; returns their rows."""
        of_bad = rows[[record.row for record in bad]]
        rejected |= {
            row: Rejection(record.reason, record.error + advice(record.error, self._fields.event_time))
            for row, record in zip(of_bad.tolist(), bad, strict=True)
        }
        return of_bad

    def _events(self, part: EventPart, rejected: dict[int, Rejection]) -> _Events:
        """Fill the tensors of a part. Adds the events that don't fit the model to `rejected`."""
        table, rows, times = part
        fitted = self._fill(table, allow_nan=self._allow_nan, event_times=times)
        rejected |= {int(rows[unfit.row]): Rejection("unfit", unfit.error) for unfit in fitted.unfit}
        fields = self._fields
        events = _Events(
            rows,
            ids=None if fields.event_id is None else ids_of(table[fields.event_id]),
            times=times,
            costs=None if fields.cost is None else costs_of(table[fields.cost]),
            features=table.select(self._keep) if self._keep else None,
            tensors=fitted.tensors,
            replaced=self._replaced(table, fitted.replaced),
        )
        return events if len(fitted.rows) == len(rows) else events.kept(fitted.rows)

    def _replaced(self, table: Table, of_model: Replacements) -> Replacements:
        """What was replaced in these events. `of_model`: without the fields that Millstream itself uses."""
        own = absent_in(table, self._own)
        return Replacements(of_model.events, {**of_model.sources, **own}) if own else of_model

    def _with_ids(self, part: Part, rejected: dict[int, Rejection]) -> Part:
        """Leave out the events whose ID is null, and add them to `rejected`."""
        table, rows = part
        field = self._fields.event_id
        if field is None or (valid := table[field].valid) is None:
            return part
        rejected |= dict.fromkeys(
            rows[~valid].tolist(), Rejection("unfit", f"field `{field}`, the event id, is absent or null")
        )
        return Part(table.take(np.flatnonzero(valid)), rows[valid])

    def _with_times(self, part: Part, timestamps: Ints, rejected: dict[int, Rejection]) -> tuple[Part, Ints]:
        """The event times in ms. An event without one gets its record's timestamp; one with an invalid one is left out."""
        field, stamps = self._fields.event_time, timestamps[part.rows]
        if field is None:
            odd = ~in_calendar(stamps, "milliseconds")
            return _without(part, stamps, odd, lambda row: _of_record(stamps[row]), rejected)
        column = part.table[field]
        times, wrong = event_times(column, self._fields.time_format)
        if not self._told_of_seconds and len(times) and self._fields.time_format == "milliseconds":
            self._look_for_seconds(field, int(times[0]))
        if column.valid is not None:
            odd = ~in_calendar(stamps, "milliseconds")
            times, wrong = np.where(column.valid, times, stamps), np.where(column.valid, wrong, odd)

        def why(row: int) -> str:
            if column.valid is not None and not column.valid[row]:
                return _of_record(stamps[row])
            is_text = isinstance(column, StringColumn)
            expected = ISO8601 if is_text else f"{self._fields.time_format} since 1970 {YEARS}"
            return f"field `{field}`, the event time: expected {expected}, found {shown(column, row)}"

        return _without(part, times, wrong, why, rejected)

    def _look_for_seconds(self, field: str, time: int) -> None:
        """Warn once if the time of an event looks like seconds. That of the first one suffices: producers have one unit."""
        if time in LIKE_SECONDS:
            self._told_of_seconds = True
            log.warning(
                "field `%s`, the event time, looks like seconds, such as %d, but is read as milliseconds: all events would be of "
                "January or February 1970. If it is in seconds, write `event_time_format: seconds` under `input` in the pipeline "
                "file, or correct the producer",
                field,
                time,
            )

    def _deadlines(
        self, event_times: Ints, headers: Mapping[int, RecordHeaders], rows: Ints
    ) -> tuple[Ints | None, int]:
        """The deadline of each event, and the number of invalid headers. The earlier of `max_age` and header counts."""
        fields = self._fields
        if fields.max_age is None and fields.deadline_header is None:
            return None, 0
        deadlines = np.full(len(rows), NEVER) if fields.max_age is None else _later(event_times, fields.max_age)
        if fields.deadline_header is None or not headers:
            return deadlines, 0
        invalid = 0
        with_headers = rows_in(headers, rows)
        for event, row in zip(with_headers.tolist(), rows[with_headers].tolist(), strict=True):
            stated = _deadline(headers[row], fields.deadline_header)
            invalid += stated is None
            deadlines[event] = min(int(deadlines[event]), NEVER if stated is None else stated)
        return deadlines, invalid


def _without(
    part: Part, times: Ints, wrong: Mask, why: Callable[[int], str], rejected: dict[int, Rejection]
) -> tuple[Part, Ints]:
    """The events and their times without the wrong ones, which become rejections."""
    if not wrong.any():
        return part, times
    for row in np.flatnonzero(wrong).tolist():
        rejected[int(part.rows[row])] = Rejection("unfit", why(row))
    return Part(part.table.take(np.flatnonzero(~wrong)), part.rows[~wrong]), times[~wrong]


def _of_record(timestamp: int) -> str:
    return (
        f"the record's timestamp, which is the event time: expected milliseconds since 1970 {YEARS}, found {timestamp}"
    )


def _together(parts: Sequence[_Events]) -> _Events:
    """The events of all parts, in the order of their records."""
    if len(parts) == 1:
        return parts[0]
    rows = np.concatenate([part.rows for part in parts])
    order = np.argsort(rows, kind="stable")  # quick for a few ascending runs
    ids = [part.ids for part in parts if part.ids is not None]
    costs = [part.costs for part in parts if part.costs is not None]
    features = [part.features for part in parts if part.features is not None]
    return _Events(
        rows[order],
        Texts.concat(ids).reordered(order) if ids else None,
        np.concatenate([part.times for part in parts])[order],
        np.concatenate(costs)[order] if costs else None,
        Table.concat(features).take(order) if features else None,
        {name: array[order] for name, array in join_rows([part.tensors for part in parts]).items()},
        sum((part.replaced for part in parts), Replacements()),
    )


def _later(times: Ints, by: int) -> Ints:
    """Add ms to the times, up to `NEVER`: near 2^63, a plain sum would overflow to a time in the past."""
    return np.minimum(times, NEVER - by) + by


def _without_tombstones(values: Sequence[bytes | None]) -> tuple[Ints, Packed]:
    """Leave out tombstones. Returns the rows of the other values, and these values."""
    if isinstance(values, Packed):
        return np.arange(len(values)), values
    rows = np.fromiter((row for row, value in enumerate(values) if value is not None), np.int64)
    return rows, Packed.of([value for value in values if value is not None])


def _loads(records: Records, left_out: Ints) -> Ints | None:
    """The cumulated bytes without those of records that a filter leaves out; None: it leaves none out."""
    if not len(left_out):
        return None
    sizes = records.sizes.copy()
    sizes[left_out] = 0
    return np.asarray(sizes.cumsum())


def _without_objects(strings: Sequence[bytes | None]) -> Sequence[bytes | None]:
    """The same strings. If they lie in one buffer, their Python objects are dropped, which would live until the end."""
    return strings[:] if isinstance(strings, Packed) else strings


def costs_of(column: Column) -> Ints:
    """The cost of each event, rounded up: a number, or the length of a list or text (in characters). For null and NaN it is 0."""
    match column:
        case ListColumn():
            numbers = column.lengths
        case StringColumn():
            numbers = Texts(column.packed).characters()
        case NumberColumn():
            numbers = column.values if column.valid is None else np.where(column.valid, column.values, 0)
    # Bounded, so that the sums of a block fit into 64 bits.
    return np.ceil(np.clip(np.nan_to_num(numbers.astype(np.float64)), 0, MAX_COST)).astype(np.int64)


def _deadline(headers: RecordHeaders, name: str) -> int | None:
    """The header's deadline, ms since the epoch; `NEVER` without the header, None if its value is invalid."""
    stated = [value for _, value in headers.named([name]) if value is not None]
    for value in stated:
        # More digits are beyond any time, and Python refuses to parse more than 4,300.
        if value.isdigit() and len(value) <= MAX_DEADLINE_DIGITS:
            return min(int(value), NEVER)
    return None if stated else NEVER
