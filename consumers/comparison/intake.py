"""Handles each record that the comparison job reads."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import numpy as np

from millstream.consumers.comparison import metrics as m
from millstream.consumers.comparison.chunks import LABEL_ROW, rows_of
from millstream.consumers.comparison.errors import DamagedRecordError
from millstream.consumers.comparison.outcomes import Outcomes
from millstream.consumers.comparison.rows import LabelReader, Scoring
from millstream.consumers.comparison.schema_wait import with_schemas
from millstream.consumers.comparison.streams import write
from millstream.consumers.observability.seldom import Kind
from millstream.inference.class_answers import OTHER_CLASS
from millstream.schemas.comparisons import ComparisonDecoder

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.consumers.comparison.chunks import Rows
    from millstream.consumers.comparison.job import Joins, Merges
    from millstream.consumers.comparison.pairs import KnownPairs
    from millstream.consumers.comparison.streams import Streams
    from millstream.inference.class_answers import Classes
    from millstream.pipeline.pipeline import Pipeline
    from millstream.schemas.comparisons import Comparisons
    from millstream.schemas.store import SchemaStore

_PARTS_AT_ONCE = 50  # parts between two turns of the loop's other work
_MAX_CHUNK_BYTES = 800_000  # bytes of a chunk's rows. Faust's producer rejects a record of more than 1,000,000 bytes


class Intake:
    """Decodes records, and passes them to the joins and merges. Faust's event loop calls it."""

    def __init__(
        self,
        pipeline: Pipeline,
        store: SchemaStore,
        streams: Streams,
        *,
        classes: Classes | None,
        joins: Joins,
        merges: Merges,
        known: KnownPairs,
        metrics: m.ComparisonMetrics,
    ) -> None:
        """Raises:
        SchemaError: the labels' schema is missing, or lacks a field that the pipeline file names.
        """
        self._streams = streams
        self._joins = joins
        self._merges = merges
        self._known = known
        self._metrics = metrics
        self._decoder = ComparisonDecoder(store)
        self._scoring = Scoring.of(pipeline.comparison, classes)
        self._outcomes = Outcomes(pipeline.comparison.task, classes)
        self._labels = LabelReader(pipeline.labels, store, self._outcomes) if pipeline.labels else None
        self.compared = 0  # comparisons read so far

    async def comparisons(self, event: Any) -> None:
        """Join the comparisons of one fetch with their labels."""
        records = event.value
        comparisons, bad = await self._with_schemas(
            event, lambda: self._decoder.decode([record.value for record in records])
        )
        self._metrics.count(m.READ, len(records), "comparisons")
        self._metrics.leave_out(len(bad), "undecodable", next(iter(bad.values()), None))
        comparisons, others = comparisons.of_pairs(self._known)
        if others:
            self._metrics.leave_out(len(others), "unknown_pair", self._known.refusal(others[0]))
        rows = self._scoring.rows(comparisons, np.array([record.offset for record in records], np.int64))
        self._warn_of_other_classes(rows, comparisons)
        partition = event.message.partition
        most = max(1, _MAX_CHUNK_BYTES // rows.itemsize)
        for first in range(0, len(rows), most):
            part = rows[first : first + most]
            await write(self._streams.chunks, partition, self._joins.comparisons(partition, part, comparisons.pairs))
        self.compared += len(records)

    def _warn_of_other_classes(self, rows: Rows, comparisons: Comparisons) -> None:
        """Warn of answers that count as wrong because they are no class that is compared, now and then."""
        if self._scoring.classes is None:
            return
        for side, outputs in (("primary", comparisons.primary), ("shadow", comparisons.shadow)):
            others = np.flatnonzero(rows[f"{side}_class"] == OTHER_CLASS)
            if len(others):
                kind = Kind(
                    f"answer of the {side} is no class of the comparison, and counts as wrong",
                    f"answers of the {side} are no class of the comparison, and count as wrong",
                )
                example = f"{outputs[others[0]]}. Name all classes in `comparison.classes`"
                self._metrics.warnings.warn(kind, len(others), example)

    async def labels(self, event: Any) -> None:
        """Send each label of one fetch to the partition of its event's comparison."""
        reader, records = self._labels, event.value
        assert reader is not None
        columns = [[getattr(record, name) for record in records] for name in ("value", "partition", "offset")]
        ids, rows, bad = await self._with_schemas(event, lambda: reader.rows(*columns))
        self._metrics.count(m.READ, len(records), "labels")
        self._metrics.leave_out(bad.number, "bad_labels", bad.example)
        places = np.array([self._streams.partition_of(event_id) for event_id in ids], np.int64)
        sent = [
            await self._streams.by_event.send(value=rows[places == partition].tobytes(), partition=partition)
            for partition in np.unique(places).tolist()
        ]
        if sent:
            await asyncio.gather(*sent)

    async def labels_by_event(self, event: Any) -> None:
        """Join labels that were sent to the partition of their comparisons."""
        try:
            rows = rows_of(event.value or b"", LABEL_ROW)
        except DamagedRecordError as error:
            self._metrics.leave_out(1, "damaged", error)
            return
        good = self._outcomes.are_possible(rows["value"])
        self._metrics.leave_out(int((~good).sum()), "damaged", "a label with an impossible value")
        rows = rows[good]
        partition = event.message.partition
        await write(self._streams.chunks, partition, self._joins.labels(partition, rows))

    async def parts(self, event: Any) -> None:
        """Merge the summaries of windows of one fetch with those of other partitions."""
        partition = event.message.partition
        for first in range(0, len(event.value), _PARTS_AT_ONCE):
            writes = dict[bytes, bytes | None]()
            for record in event.value[first : first + _PARTS_AT_ONCE]:
                writes |= self._merges.put(partition, record.value)
            await write(self._streams.parts, partition, writes.items())

    async def _with_schemas(self, event: Any, work: Callable[[], Any]) -> Any:
        """Decode this event's records in a thread; wait as long as their schemas can't be loaded."""
        first, topic = event.value[0], event.message.topic
        what = f"records of {topic}/{first.partition} from offset {first.offset} on"
        return await with_schemas(work, what, lambda: self._metrics.count(m.RETRIES))
