"""The comparison job: what flows between its topics and tables (streams.py).

```
 comparisons (by event id) ----------------------------> join -> parts of windows (by pair) -> merge -> evaluations
 labels (any key) -> sorted by event id, by batch ------->  |                                    |
                                                        table `chunks`                      table `parts`
```
intake.py has the arrows that each record takes, updates.py those that run from time to time. A record is done with, and its
offset committed, when what it led to is in the changelog. The internal topics, the tables' changelogs and the comparison topic
have equally many partitions, so Faust assigns them together.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from millstream.consumers.comparison import metrics as m
from millstream.consumers.comparison.intake import Intake
from millstream.consumers.comparison.job import Joins, Merges, join_settings
from millstream.consumers.comparison.pairs import KnownPairs
from millstream.consumers.comparison.record_batches import install
from millstream.consumers.comparison.streams import Streams
from millstream.consumers.comparison.updates import Updates

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.consumers.observability.health import Health
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
        metrics: m.ComparisonMetrics,
        health: Health,
    ) -> None:
        """Args:
            pipeline: with shadows.
            store: of the schemas.
            partitions: of the comparison topic.
            replication: factor of the topics that are made.
            folder: a temporary one, for Faust; nothing that counts is kept there.
            metrics: where to count.
            health: whom to tell that the job goes on.

        Raises:
            ComparisonError: the broker can't be reached the way the pipeline file says, or the primary's version is not known.
            SchemaError: the labels' schema is not there, or has no such field.
        """
        self._metrics = metrics
        self._health = health
        install(lambda count, why: metrics.leave_out(count, "bad_batch", why))
        self._streams = Streams(pipeline, partitions=partitions, replication=replication, folder=folder)
        self.faust = self._streams.faust
        known = KnownPairs(pipeline)
        self._joins = Joins(join_settings(pipeline), self._streams.chunks.data, known, metrics)
        self._merges = Merges(pipeline, self._streams.parts.data, known, metrics, sources=partitions)
        intake = self._intake = Intake(
            pipeline, store, self._streams, joins=self._joins, merges=self._merges, known=known, metrics=metrics
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
        self._agent(streams.by_pair, intake.part)
        if streams.labels is not None:
            self._agent(streams.labels, intake.labels)
            self._agent(streams.by_event, intake.labels_by_event)
        self.faust.on_partitions_revoked.connect(self._forget)
        self.faust.on_partitions_assigned.connect(self._forget_others)
        # What was under way may have asked for a join while the tables were not whole.
        self.faust.on_rebalance_complete.connect(self._forget)
        self.faust.task(self._updates.run)

    def _agent(self, topic: Any, handle: Callable[[Any], Any]) -> None:
        async def run(stream: Any) -> None:
            async for event in stream.events():
                try:
                    await handle(event)
                except Exception:
                    # Faust would say nothing, and commit past the records.
                    count = len(event.value) if isinstance(event.value, list) else 1
                    log.exception("%d records of %s don't count: an unexpected error", count, event.message.topic)
                    self._metrics.leave_out(count, "internal_error")

        self.faust.agent(topic, name=handle.__name__)(run)

    async def _forget(self, *_: object, **__: object) -> None:
        """Partitions come and go: start anew from the tables, when these are restored."""
        self._joins.clear()
        self._merges.clear()
        self._updates.clear()
        self._metrics.forget(m.LAG)
        self._health.ready = False
        self._health.waiting_for = "the tables to be restored"

    async def _forget_others(self, _app: Any, /, *arguments: Any, **__: Any) -> None:
        """Let go what the tables hold of partitions that went elsewhere, which Faust keeps where it was written here."""
        await self._forget()
        (assigned,) = arguments
        for table in (self._streams.chunks, self._streams.parts):
            changelog = table.changelog_topic.get_topic_name()
            ours = {b"%d" % place.partition for place in assigned if place.topic == changelog}
            for key in [key for key in table.data if key.split(b"/", 1)[0] not in ours]:
                table.data.pop(key, None)
