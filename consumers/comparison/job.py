"""What the Faust app does with what it reads: joins by partition, their chunks in a table; merges, their parts in another."""

from __future__ import annotations

import logging
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from consumers.comparison import metrics as m
from consumers.comparison.join import WRITERS, JoinSettings, PartitionJoin
from consumers.comparison.partials import Merge, Partial
from consumers.comparison.results import result
from schemas.comparisons import Pair, Variant

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from consumers.comparison.chunks import Rows
    from consumers.comparison.join import Change
    from topics.pipeline import Pipeline

log = logging.getLogger(__name__)

Write = tuple[bytes, bytes | None]
"""A table's key and its value; None: no more."""
_NO_LABELS_WAIT = 600_000  # ms that a window waits for late comparisons where there are no labels


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
    def unpack(cls, packed: bytes) -> Part:
        """Undo `pack`."""
        start, (primary, shadow), source, partial = msgspec.msgpack.decode(packed)
        return cls(start, Pair(Variant(*primary), Variant(*shadow)), source, partial)


def join_settings(pipeline: Pipeline) -> JoinSettings:
    """As the pipeline file says."""
    comparison, labels = pipeline.comparison, pipeline.labels
    return JoinSettings(
        window=max(round(comparison.window * 1000), 1),
        wait=round(labels.wait * 1000) if labels else _NO_LABELS_WAIT,
        early=round(labels.early * 1000) if labels else 0,
        most_events=comparison.max_events,
        threshold=comparison.threshold,
    )


class Joins:
    """The joins of the partitions that this process has. They are built from the table's content when first asked for."""

    def __init__(self, settings: JoinSettings, table: Mapping[bytes, bytes], metrics: m.ComparisonMetrics) -> None:
        self._settings = settings
        self._table = table
        self._metrics = metrics
        self._joins: dict[int, PartitionJoin] = {}

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
        return self._writes(partition, join, changes), parts

    def _of(self, partition: int) -> PartitionJoin:
        if partition not in self._joins:
            prefix = b"%d/" % partition
            packed = {int(key[len(prefix) :]): value for key, value in self._table.items() if key.startswith(prefix)}
            self._joins[partition] = PartitionJoin.restored(self._settings, packed, secrets.randbelow(WRITERS))
        return self._joins[partition]

    def _writes(self, partition: int, join: PartitionJoin, changes: Iterable[Change]) -> list[Write]:
        for reason, count in join.counts.items():
            self._metrics.count(m.LEFT_OUT, count, reason)
        join.counts.clear()
        return [(b"%d/%d" % (partition, number), packed) for number, packed in changes]


class Merges:
    """The merges of the partitions that this process has of the parts' topic, built likewise."""

    def __init__(self, pipeline: Pipeline, table: Mapping[bytes, bytes], metrics: m.ComparisonMetrics) -> None:
        settings = join_settings(pipeline)
        self._pipeline = pipeline
        self._window = settings.window
        # A window's parts change until its join forgets it.
        self._kept = 2 * settings.window + settings.wait
        self._table = table
        self._metrics = metrics
        self._merges: dict[int, Merge] = {}
        self._newest: dict[Pair, int] = {}  # the newest window that the metrics show

    def clear(self) -> None:
        """Forget all: the assignment changes."""
        self._merges.clear()

    def put(self, partition: int, packed: bytes) -> Write:
        """Take a part; returns what to write to the table."""
        merge = self._of(partition)
        part = Part.unpack(packed)
        merge.put(part.start, part.pair, part.source, Partial.unpack(part.partial))
        return _part_key(partition, part.start, part.pair, part.source), packed

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
        return [(_part_key(partition, *place), None) for place in merge.forget()], records

    def _of(self, partition: int) -> Merge:
        if partition not in self._merges:
            merge = self._merges[partition] = Merge(kept=self._kept)
            prefix = b"%d/" % partition
            for key, packed in list(self._table.items()):
                if key.startswith(prefix):
                    part = Part.unpack(packed)
                    merge.put(part.start, part.pair, part.source, Partial.unpack(part.partial))
        return self._merges[partition]

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
