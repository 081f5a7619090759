"""What the Faust app does with what it reads: joins by partition, their chunks in a table; merges, their parts in another."""

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
from millstream.consumers.comparison.join import MAX_AHEAD_MS, WRITER_NUMBERS, JoinSettings, PartitionJoin
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
"""A table's key and its value; None: no more."""
_Packed = tuple[int, Pair, int, bytes]
_KEY = re.compile(rb"[0-9]{1,9}/([0-9]{1,19})")  # of a chunk
_MAX_CHUNKS = 1 << 62  # numbers of chunks, so that those to come are in 64 bits too
# Faust's producer refuses a record of more than 1,000,000 bytes: the job would end, and again after each restart.
_MAX_SUMMARY_BYTES = 900_000  # bytes of a part's summary
# Bytes of a part: the summary and the names of the pair. The record's key has these names again.
_MAX_PART_BYTES = 950_000
_NO_LABELS_WAIT_MS = 600_000  # ms that a window waits for late comparisons where there are no labels


@dataclass(frozen=True, slots=True)
class Part:
    """One partition's summary of a window and pair, on its way to the merge."""

    start: int  # of the window, ms since the epoch
    pair: Pair
    source: int  # the partition
    partial: bytes  # packed

    def pack(self) -> bytes:
        """As it travels."""
        return msgspec.msgpack.encode([self.start, [list(side) for side in self.pair], self.source, self.partial])

    @classmethod
    def unpack(cls, packed: bytes | None) -> Part:
        """Undo `pack`. Raises DamagedRecordError."""
        try:
            return cls(*msgspec.msgpack.decode(packed or b"", type=_Packed))
        except (msgspec.MsgspecError, RecursionError) as error:
            raise DamagedRecordError(f"no part of a window: {error}") from error


def join_settings(pipeline: Pipeline) -> JoinSettings:
    """As the pipeline file says."""
    comparison, labels = pipeline.comparison, pipeline.labels
    return JoinSettings(
        window=max(round(comparison.window * 1000), 1),
        wait=round(labels.wait * 1000) if labels else _NO_LABELS_WAIT_MS,
        early=round(labels.early * 1000) if labels else 0,
        most_events=comparison.max_events,
        threshold=comparison.threshold,
    )


class Joins:
    """The joins of the partitions that this process has. They are built from the table's content when first asked for."""

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
        self._strange: dict[int, list[bytes]] = {}  # keys that are no chunk's, for the changelog to let go

    def clear(self) -> None:
        """Forget all: the assignment changes."""
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
        """See PartitionJoin."""
        self._of(partition).close(until)

    def tick(self, partition: int) -> tuple[list[Write], list[Part]]:
        """Summarise what changed in a partition."""
        join = self._of(partition)
        changes, partials = join.tick(_now())
        parts = [Part(start, pair, partition, partial.pack()) for start, pair, partial in partials]
        small = [part for part in parts if len(part.partial) <= _MAX_SUMMARY_BYTES]
        self._metrics.leave_out(
            len(parts) - len(small),
            "too_large",
            f"a summary of partition {partition} takes more than {_MAX_SUMMARY_BYTES} bytes: lower comparison.max_events",
        )
        strange: list[Write] = [(key, None) for key in self._strange.pop(partition, ())]
        return [*strange, *self._writes(partition, join, changes)], small

    def _of(self, partition: int) -> PartitionJoin:
        if partition not in self._joins:
            packed, strange = dict[int, bytes](), list[bytes]()
            for key, value in self._table.items():
                if key.startswith(b"%d/" % partition):
                    match = _KEY.fullmatch(key)
                    if match is not None and (number := int(match[1])) < _MAX_CHUNKS:
                        packed[number] = value
                    else:
                        strange.append(key)
            self._strange[partition] = strange
            self._metrics.leave_out(len(strange), "damaged", strange[:1])
            writer = secrets.randbelow(WRITER_NUMBERS)
            self._joins[partition] = PartitionJoin.restored(
                self._settings, packed, writer, latest=_now() + MAX_AHEAD_MS, known=self._known
            )
        return self._joins[partition]

    def _writes(self, partition: int, join: PartitionJoin, changes: Iterable[Change]) -> list[Write]:
        for reason, count in join.counts.items():
            self._metrics.leave_out(count, reason, "a chunk of the changelog" if reason == "damaged" else None)
        join.counts.clear()
        return [(b"%d/%d" % (partition, number), packed) for number, packed in changes]


class Merges:
    """The merges of the partitions that this process has of the parts' topic, built likewise."""

    def __init__(
        self,
        pipeline: Pipeline,
        table: Mapping[bytes, bytes],
        known: KnownPairs,
        metrics: m.ComparisonMetrics,
        *,
        sources: int,
    ) -> None:
        """Args:
        pipeline: with shadows.
        table: of the parts.
        known: pairs that are compared.
        metrics: where to count.
        sources: how many partitions send parts.
        """
        settings = join_settings(pipeline)
        self._pipeline = pipeline
        self._window = settings.window
        # A window's parts change until its join forgets it.
        self._kept = 2 * settings.window + settings.wait
        self._most_windows = settings.most_windows
        self._most_bytes = most_bytes_of(settings.most_events)
        self._sources = sources
        self._table = table
        self._known = known
        self._metrics = metrics
        self._merges: dict[int, Merge] = {}
        self._strange: dict[int, set[bytes]] = {}  # keys of what is no part, or too much, for the changelog to let go
        self._newest: dict[Pair, int] = {}  # the newest window that the metrics show

    def clear(self) -> None:
        """Forget all: the assignment changes."""
        self._merges.clear()

    def put(self, partition: int, packed: bytes | None) -> list[Write]:
        """Take a part; returns what to write to the table. Counts what is no part, and the parts that went for it."""
        merge = self._of(partition)
        writes = self._put(partition, merge, packed)
        self._strange.get(partition, set()).difference_update(writes)
        return list(writes.items())

    def results(self, partition: int) -> tuple[list[Write], list[tuple[int, Pair, dict[str, Any]]]]:
        """What changed: for the table, and as records without `updated_at`."""
        merge = self._of(partition)
        regression = self._pipeline.comparison.task == "regression"
        records = [
            (
                start,
                pair,
                result(start, start + self._window, pair, whole, pipeline=self._pipeline.name, regression=regression),
            )
            for start, pair, whole in merge.results()
        ]
        for start, pair, record in records:
            self._show(start, pair, record)
        strange: list[Write] = [(key, None) for key in sorted(self._strange.pop(partition, ()))]
        return [*strange, *((_part_key(partition, *place), None) for place in merge.forget())], records

    def _of(self, partition: int) -> Merge:
        if partition not in self._merges:
            merge = self._merges[partition] = Merge(
                kept=self._kept, most_windows=self._most_windows, most_bytes=self._most_bytes
            )
            strange = self._strange[partition] = set()
            for key, packed in self._table.items():
                if key.startswith(b"%d/" % partition):
                    writes = self._put(partition, merge, packed, key) or {key: None}
                    strange.update(place for place, value in writes.items() if value is None)
        return self._merges[partition]

    def _put(
        self, partition: int, merge: Merge, packed: bytes | None, key: bytes | None = None
    ) -> dict[bytes, bytes | None]:
        """Take a part; returns what to write to the table: nothing where it is no part, or of another key than is given."""
        try:
            if packed is not None and len(packed) > _MAX_PART_BYTES:
                raise DamagedRecordError(f"expected a part of at most {_MAX_PART_BYTES} bytes, found {len(packed)}")
            part = self._checked(Part.unpack(packed))
            found = _part_key(partition, part.start, part.pair, part.source)
            if key not in (None, found):
                raise DamagedRecordError("the record has another part's key")
            if part.pair not in self._known:
                self._metrics.leave_out(1, "unknown_pair", part.pair)
                return {}
            dropped = merge.put(part.start, part.pair, part.source, part.partial, latest=_now() + MAX_AHEAD_MS)
        except DamagedRecordError as error:
            self._metrics.leave_out(1, "damaged", error)
            return {}
        self._metrics.leave_out(len(dropped), "late", "summaries of the oldest windows: there are too many")
        return {found: packed, **{_part_key(partition, *place): None for place in dropped}}

    def _checked(self, part: Part) -> Part:
        """Raises DamagedRecordError: no partition of ours can have said so."""
        in_time = 0 <= part.start <= _now() + MAX_AHEAD_MS and part.start % self._window == 0
        if not in_time or not 0 <= part.source < self._sources:
            raise DamagedRecordError(f"no window begins at {part.start}, or there is no partition {part.source}")
        return part

    def _show(self, start: int, pair: Pair, record: dict[str, Any]) -> None:
        """Set the metrics, where no newer window is shown."""
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


def _part_key(partition: int, start: int, pair: Pair, source: int) -> bytes:
    sides = msgspec.msgpack.encode([list(side) for side in pair])
    return b"%d/%d/%d/" % (partition, start, source) + sides


def _now() -> int:
    return time.time_ns() // 1_000_000
