"""Connects joins and merges with the Faust app's tables: one join per partition, one merge per partition of the parts' topic.

The joins' chunks are in one table, the merges' parts in another.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from millstream.consumers.comparison import metrics as m
from millstream.consumers.comparison.errors import DamagedRecordError
from millstream.consumers.comparison.join import (
    MAX_AHEAD_MS,
    NO_LABELS_WAIT_MS,
    WRITER_NUMBERS,
    JoinSettings,
    PartitionJoin,
)
from millstream.consumers.comparison.partials import Merge, most_bytes_of
from millstream.consumers.comparison.results import result
from millstream.schemas.comparisons import Pair

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from millstream.consumers.comparison.chunks import Rows
    from millstream.consumers.comparison.join import Change
    from millstream.consumers.comparison.pairs import KnownPairs
    from millstream.pipeline.pipeline import Pipeline

log = logging.getLogger(__name__)

Write = tuple[bytes, bytes | None]
"""A key of a table and its new value; None deletes the key."""
_Packed = tuple[int, Pair, int, bytes]
_CHUNK_KEY = re.compile(rb"[0-9]{1,9}/([0-9]{1,19})")
_CHUNK_NUMBER_LIMIT = 1 << 62  # below this, the numbers of later chunks fit into 64 bits, too
# Faust's producer rejects a record of more than 1,000,000 bytes. The job would end, and would end again after each restart.
_MAX_SUMMARY_BYTES = 900_000  # bytes of a part's summary
# Bytes of a part: the summary and the names of the pair. The record's key contains these names, too.
_MAX_PART_BYTES = 950_000


_LATE_PARTS = (
    "summaries of the oldest windows: there are too many windows, or a partition of the comparison topic is so far behind that "
    "the other partitions' summaries are gone"
)


@dataclass(frozen=True, slots=True)
class Part:
    """One partition's summary of a window and pair, on its way to the merge."""

    start: int  # the window's start, ms since the epoch
    pair: Pair
    source: int  # the partition of the comparison topic
    partial: bytes  # the packed summary

    def pack(self) -> bytes:
        """Encode the part for the parts' topic."""
        return msgspec.msgpack.encode([self.start, [list(side) for side in self.pair], self.source, self.partial])

    @classmethod
    def unpack(cls, packed: bytes | None) -> Part:
        """Undo `pack`. Raises DamagedRecordError."""
        try:
            return cls(*msgspec.msgpack.decode(packed or b"", type=_Packed))
        except (msgspec.MsgspecError, RecursionError) as error:
            raise DamagedRecordError(f"not a part of a window: {error}") from error


class Joins:
    """The joins of this process's partitions. A join is built from the table's content when it is first needed."""

    def __init__(
        self,
        settings: JoinSettings,
        table: Mapping[bytes, bytes],
        known: KnownPairs,
        metrics: m.ComparisonMetrics,
    ) -> None:
        self._settings = settings
        self._table = table
        self._known = known
        self._metrics = metrics
        self._joins: dict[int, PartitionJoin] = {}
        self._examples = {
            "damaged": "a chunk of the changelog",
            "late": f"a comparison of a closed window. A window closes when `labels.wait` is over (without `labels`, "
            f"{NO_LABELS_WAIT_MS // 60_000} minutes after its end), or earlier if more than {settings.most_windows:,} windows of "
            "a partition are open: then write a larger `comparison.window`",
            "ahead": "a comparison of an event whose time is more than 5 minutes ahead of this machine's clock",
        }
        if settings.all_compared:  # of a sample, most labels have no comparison, and nothing is to be done
            self._examples["unknown_labels"] = (
                "a label whose event has no comparison here: its window is deleted (one `comparison.window` after it closed), no "
                "shadow scored it, or `labels.event_id` names another ID. If labels come late, write a longer `labels.wait`"
            )
        self._foreign: dict[
            int, list[bytes]
        ] = {}  # partition -> keys that aren't a chunk's; the next `clean_up` deletes them

    def clear(self) -> None:
        """Drop all joins, because the assignment changes."""
        self._joins.clear()

    def comparisons(self, partition: int, rows: Rows, pairs: list[Pair]) -> list[Write]:
        """Take comparisons; returns what to write to the table."""
        join = self._of(partition)
        return self._writes(partition, join, join.add_comparisons(rows, pairs, _now()))

    def labels(self, partition: int, rows: Rows) -> list[Write]:
        """Take labels; returns what to write to the table."""
        join = self._of(partition)
        return self._writes(partition, join, join.add_labels(rows, _now()))

    def watermark(self, partition: int) -> int:
        """The newest event time read from a partition, ms since the epoch."""
        return self._of(partition).watermark

    def close(self, partition: int, until: int) -> None:
        """Call `PartitionJoin.close`."""
        self._of(partition).close(until)

    def parts(self, partition: int) -> Iterator[Part]:
        """Summarise the windows that changed in a partition, one by one."""
        for start, pair, partial in self._of(partition).summaries():
            part = Part(start, pair, partition, partial.pack())
            if len(part.partial) <= _MAX_SUMMARY_BYTES:
                yield part
            else:
                self._metrics.leave_out(
                    1,
                    "too_large",
                    f"a summary of partition {partition} takes more than {_MAX_SUMMARY_BYTES} bytes: "
                    "lower comparison.max_events",
                )

    def clean_up(self, partition: int) -> list[Write]:
        """Delete what is no longer needed; returns what to write to the table. Take all `parts` before."""
        join = self._of(partition)
        foreign: list[Write] = [(key, None) for key in self._foreign.pop(partition, ())]
        return [*foreign, *self._writes(partition, join, join.clean_up(_now()))]

    def _of(self, partition: int) -> PartitionJoin:
        if partition not in self._joins:
            packed, foreign = dict[int, bytes](), list[bytes]()
            for key, value in self._table.items():
                if key.startswith(b"%d/" % partition):
                    match = _CHUNK_KEY.fullmatch(key)
                    if match is not None and (number := int(match[1])) < _CHUNK_NUMBER_LIMIT:
                        packed[number] = value
                    else:
                        foreign.append(key)
            self._foreign[partition] = foreign
            self._metrics.leave_out(len(foreign), "damaged", foreign[:1])
            writer = secrets.randbelow(WRITER_NUMBERS)
            self._joins[partition] = PartitionJoin.restored(
                self._settings, packed, writer, latest=_now() + MAX_AHEAD_MS, known=self._known
            )
        return self._joins[partition]

    def _writes(self, partition: int, join: PartitionJoin, changes: Iterable[Change]) -> list[Write]:
        for reason, count in join.counts.items():
            self._metrics.leave_out(count, reason, self._examples.get(reason))
        join.counts.clear()
        return [(b"%d/%d" % (partition, number), packed) for number, packed in changes]


class Merges:
    """The merges of this process's partitions of the parts' topic. They are built like the joins."""

    def __init__(
        self,
        pipeline: Pipeline,
        settings: JoinSettings,
        table: Mapping[bytes, bytes],
        known: KnownPairs,
        metrics: m.ComparisonMetrics,
        *,
        sources: int,
    ) -> None:
        """Args:
        pipeline: a pipeline with shadows.
        settings: those of the joins.
        table: the table of the parts.
        known: the pairs that are compared.
        metrics: the job's metrics.
        sources: number of partitions that send parts.
        """
        self._pipeline = pipeline
        self._window = settings.window
        self._kept = 2 * settings.window + settings.wait
        self._most_windows = settings.most_windows
        self._most_bytes = most_bytes_of(settings.most_events)
        self._sources = sources
        self._table = table
        self._known = known
        self._metrics = metrics
        self._merges: dict[int, Merge] = {}
        # Partition -> keys of entries that aren't parts, or are too many; the next `forget` deletes them.
        self._foreign: dict[int, set[bytes]] = {}
        self._newest: dict[Pair, int] = {}  # the window that the metrics show

    def clear(self) -> None:
        """Drop all merges, because the assignment changes."""
        self._merges.clear()

    def put(self, partition: int, packed: bytes | None) -> dict[bytes, bytes | None]:
        """Take a part; returns what to write to the table. Counts records that aren't parts, and the old parts that it drops."""
        merge = self._of(partition)
        writes = self._put(partition, merge, packed)
        self._foreign.get(partition, set()).difference_update(writes)
        return writes

    def results(self, partition: int) -> Iterator[tuple[int, Pair, dict[str, Any]]]:
        """The results that changed, as records without `updated_at`. They are computed one by one."""
        task = self._pipeline.comparison.task
        for start, pair, whole in self._of(partition).results():
            record = result(start, start + self._window, pair, whole, pipeline=self._pipeline.name, task=task)
            self._show(start, pair, record)
            yield start, pair, record

    def forget(self, partition: int) -> list[Write]:
        """Drop the parts that are no longer needed; returns what to write to the table. Take all `results` before."""
        merge = self._of(partition)
        dropped = [_part_key(partition, *place) for place in merge.forget(_now())]
        gone: list[Write] = [(key, None) for key in (*sorted(self._foreign.pop(partition, ())), *dropped)]
        return [*self._forgotten(partition, merge), *gone]

    def _of(self, partition: int) -> Merge:
        if partition not in self._merges:
            merge = self._merges[partition] = Merge(
                kept=self._kept,
                most_windows=self._most_windows,
                most_bytes=self._most_bytes,
                sources=self._sources,
                forgotten=self._restored_forgotten(partition),
            )
            foreign = self._foreign[partition] = set()
            for key, packed in self._table.items():
                if key.startswith(b"%d/" % partition) and key != _forgotten_key(partition):
                    writes = self._put(partition, merge, packed, key) or {key: None}
                    foreign.update(place for place, value in writes.items() if value is None)
        return self._merges[partition]

    def _put(
        self, partition: int, merge: Merge, packed: bytes | None, key: bytes | None = None
    ) -> dict[bytes, bytes | None]:
        """Take a part; returns what to write to the table.

        Returns nothing if the record isn't a part, if its pair isn't known, or if it belongs to another key than `key`.
        """
        latest = _now() + MAX_AHEAD_MS
        try:
            if packed is not None and len(packed) > _MAX_PART_BYTES:
                raise DamagedRecordError(f"expected a part of at most {_MAX_PART_BYTES} bytes, found {len(packed)}")
            part = self._checked(Part.unpack(packed))
            found = _part_key(partition, part.start, part.pair, part.source)
            if key not in (None, found):
                raise DamagedRecordError("the record has the key of another part")
            if part.pair not in self._known:
                self._metrics.leave_out(1, "unknown_pair", self._known.refusal(part.pair))
                return {}
            dropped = merge.put(part.start, part.pair, part.source, part.partial, latest=latest)
        except DamagedRecordError as error:
            self._metrics.leave_out(1, "damaged", error)
            return {}
        self._metrics.leave_out(len(dropped), "late", _LATE_PARTS)
        gone = {_part_key(partition, *place): None for place in dropped}
        return {**dict(self._forgotten(partition, merge)), found: packed, **gone}

    def _restored_forgotten(self, partition: int) -> int:
        """What `_forgotten` wrote last."""
        try:
            forgotten = int(self._table.get(_forgotten_key(partition), b"0"))
        except ValueError:
            forgotten = -1
        if not 0 <= forgotten <= _now() + MAX_AHEAD_MS:
            self._metrics.leave_out(1, "damaged", "the time until which the windows of a partition are gone")
            return 0
        return forgotten

    def _forgotten(self, partition: int, merge: Merge) -> list[Write]:
        """What to write before parts are deleted, so that a merge after a restart refuses what comes of their windows, too."""
        key, value = _forgotten_key(partition), b"%d" % merge.forgotten
        return [(key, value)] if self._table.get(key, b"0") != value else []

    def _checked(self, part: Part) -> Part:
        """Raises DamagedRecordError: no join sends a part with this window or partition."""
        in_time = 0 <= part.start <= _now() + MAX_AHEAD_MS and part.start % self._window == 0
        if not in_time or not 0 <= part.source < self._sources:
            raise DamagedRecordError(f"no window starts at {part.start}, or there is no partition {part.source}")
        return part

    def _show(self, start: int, pair: Pair, record: dict[str, Any]) -> None:
        """Set the metrics, unless they show a newer window."""
        if start < self._newest.get(pair, 0):
            return
        self._newest[pair] = start
        sides = [f"{side.model}:{side.version}" for side in pair]
        self._metrics.set(m.WINDOW, start / 1000, *sides)
        for figure, value in _figures(record):
            self._metrics.set(m.RESULT, float("nan") if value is None else value, *sides, figure)


def _figures(record: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, float | None]]:
    for name, value in record.items():
        if isinstance(value, dict):
            yield from _figures(value, f"{name}_")
        elif name not in {"version", "window_start", "window_end"} and not isinstance(value, str | bool):
            yield prefix + name, value


def _forgotten_key(partition: int) -> bytes:
    return b"%d/forgotten" % partition


def _part_key(partition: int, start: int, pair: Pair, source: int) -> bytes:
    sides = msgspec.msgpack.encode([list(side) for side in pair])
    return b"%d/%d/%d/" % (partition, start, source) + sides


def _now() -> int:
    return time.time_ns() // 1_000_000
