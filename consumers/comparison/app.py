"""The comparison job: connects its topics and tables (streams.py).

```
 comparisons (by event id) ----------------------------> join -> parts of windows (by pair) -> merge -> evaluations
 labels (any key) -> sorted by event id, by batch ------->  |                                    |
                                                        table `chunks`                      table `parts`
```
intake.py handles each record. updates.py runs from time to time: it summarises the windows, and writes the results. The offset
of a record is committed once everything that follows from the record is in the changelog. The internal topics, the tables'
changelogs and the comparison topic have the same number of partitions, so Faust assigns them together.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from millstream.consumers.comparison import metrics as m
from millstream.consumers.comparison.intake import Intake
from millstream.consumers.comparison.job import Joins, Merges
from millstream.consumers.comparison.join import join_settings
from millstream.consumers.comparison.pairs import KnownPairs
from millstream.consumers.comparison.record_batches import install
from millstream.consumers.comparison.streams import Streams
from millstream.consumers.comparison.transport import is_of_records
from millstream.consumers.comparison.updates import Updates

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.consumers.observability.health import Health
    from millstream.inference.class_answers import Classes
    from millstream.pipeline.pipeline import Pipeline
    from millstream.schemas.store import SchemaStore

log = logging.getLogger(__name__)


class ComparisonApp:
    """One process of the comparison job."""

    def __init__(
        self,
        pipeline: Pipeline,
        store: SchemaStore,
        *,
        partitions: int,
        replication: int,
        folder: Path,
        classes: Classes | None,
        metrics: m.ComparisonMetrics,
        health: Health,
    ) -> None:
        """Args:
            pipeline: a pipeline with shadows.
            store: finds the schemas.
            partitions: number of partitions of the comparison topic.
            replication: replication factor of the job's own topics.
            folder: a temporary folder for Faust. The job needs nothing from it after a restart.
            classes: those of the models, if they are compared.
            metrics: the job's metrics.
            health: serves the probes; the job reports its progress there.

        Raises:
            ComparisonError: Faust doesn't support the pipeline's broker settings, or the primary's version is not known.
            SchemaError: the labels' schema is missing, or lacks a field that the pipeline file names.
        """
        self._metrics = metrics
        self._health = health
        install(lambda count, why: metrics.leave_out(count, "bad_batch", why))
        self._streams = Streams(pipeline, partitions=partitions, replication=replication, folder=folder)
        self.faust = self._streams.faust
        known = KnownPairs(pipeline)
        settings = join_settings(pipeline, classes)
        self._joins = Joins(settings, self._streams.chunks.data, known, metrics)
        self._merges = Merges(pipeline, settings, self._streams.parts.data, known, metrics, sources=partitions)
        intake = self._intake = Intake(
            pipeline,
            store,
            self._streams,
            classes=classes,
            joins=self._joins,
            merges=self._merges,
            known=known,
            metrics=metrics,
        )
        self._updates = Updates(
            pipeline,
            store,
            self._streams,
            joins=self._joins,
            merges=self._merges,
            compared=lambda: intake.compared,
            metrics=metrics,
            health=health,
        )
        self._register()

    def _register(self) -> None:
        streams, intake = self._streams, self._intake
        self._agent(streams.comparisons, intake.comparisons)
        self._agent(streams.by_pair, intake.parts)
        if streams.labels is not None:
            self._agent(streams.labels, intake.labels)
            self._agent(streams.by_event, intake.labels_by_event)
        self.faust.on_partitions_revoked.connect(self._forget)
        self.faust.on_partitions_assigned.connect(self._forget_others)
        # A record in progress may have built a join before the tables were restored.
        self.faust.on_rebalance_complete.connect(self._forget)
        self.faust.task(self._updates.run)

    def _agent(self, topic: Any, handle: Callable[[Any], Any]) -> None:
        async def run(stream: Any) -> None:
            async for event in stream.events():
                try:
                    await handle(event)
                except Exception as error:
                    if self.faust.is_ending or not is_of_records(error):
                        await self.faust.give_up(error)
                    # Faust would not log the error, and would commit past the records.
                    count = len(event.value) if isinstance(event.value, list) else 1
                    log.exception("left out %d records of %s: unexpected error", count, event.message.topic)
                    self._metrics.leave_out(count, "internal_error")

        self.faust.agent(topic, name=handle.__name__)(run)

    async def _forget(self, *_: object, **__: object) -> None:
        """Drop all state when partitions are assigned or revoked. It is rebuilt from the tables once they are restored."""
        self._joins.clear()
        self._merges.clear()
        self._updates.clear()
        self._metrics.forget(m.LAG)
        self._health.ready = False
        self._health.waiting_for = "the tables to be restored"

    async def _forget_others(self, _app: Any, /, *arguments: Any, **__: Any) -> None:
        """Delete table entries of partitions that other processes own now: Faust keeps the entries that this process wrote."""
        await self._forget()
        (assigned,) = arguments
        for table in (self._streams.chunks, self._streams.parts):
            changelog = table.changelog_topic.get_topic_name()
            ours = {b"%d" % place.partition for place in assigned if place.topic == changelog}
            for key in [key for key in table.data if key.split(b"/", 1)[0] not in ours]:
                table.data.pop(key, None)
