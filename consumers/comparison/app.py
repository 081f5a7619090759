"""The Faust app: which topics and tables there are, and what flows between them.

```
 comparisons (by event id) ----------------------------> join -> parts of windows (by pair) -> merge -> evaluations
 labels (any key) -> sorted by event id, by batch ------->  |                                    |
                                                        table `chunks`                      table `parts`
```
A record is done with, and its offset committed, when what it led to is in the changelog. The
internal topics, the tables' changelogs and the comparison topic have equally many partitions, so Faust assigns them together.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from aiokafka.partitioner import murmur2

from millstream.consumers.comparison import metrics as m
from millstream.consumers.comparison.chunks import LABEL_ROW, rows_of
from millstream.consumers.comparison.credentials import broker_settings
from millstream.consumers.comparison.errors import DamagedRecordError
from millstream.consumers.comparison.job import Joins, Merges, Write, join_settings
from millstream.consumers.comparison.names import app_name
from millstream.consumers.comparison.pace import Pace
from millstream.consumers.comparison.pairs import KnownPairs
from millstream.consumers.comparison.progress import LabelProgress
from millstream.consumers.comparison.record_batches import install
from millstream.consumers.comparison.results import encode_result, result_key
from millstream.consumers.comparison.rows import LabelReader, Scoring, are_labels
from millstream.consumers.comparison.schema_wait import with_schemas
from millstream.consumers.comparison.transport import FOLDED_RECORDS, FoldingApp
from millstream.consumers.schema_store import own_schema_id
from millstream.schemas.comparisons import ComparisonDecoder
from millstream.schemas.records import EVALUATION
from millstream.topics.errors import TopicsError
from millstream.topics.lag import LagReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from millstream.consumers.observability.health import Health
    from millstream.pipeline.pipeline import Pipeline
    from millstream.schemas.store import SchemaStore

log = logging.getLogger(__name__)

BUFFERED = 8  # messages that wait for an agent; a folded one holds up to FOLDED_RECORDS
MOST_OF_THE_TIME = 0.25  # that summaries may take of an agent's time: with much to summarise they come less often
SESSION = 10.0  # seconds, after which a crashed process's partitions move


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
        name = app_name(pipeline)
        self._pipeline = pipeline
        self._partitions = partitions
        self._metrics = metrics
        self._health = health
        self._decoder = ComparisonDecoder(store)
        self._known = KnownPairs(pipeline)
        self._scoring = Scoring.of(pipeline.comparison)
        self._labels = (
            LabelReader(pipeline.labels, store, regression=self._scoring.regression) if pipeline.labels else None
        )
        self._schema_id = own_schema_id(pipeline, store, EVALUATION, pipeline.comparison.evaluations)
        self._progress = LabelProgress(pipeline.labels.topic, f"{name}-labels") if pipeline.labels else None
        self._lags: LagReader | None = None
        self._pace = Pace()
        self._compared = 0
        self._behind = False
        install(lambda count, why: metrics.leave_out(count, "bad_batch", why))
        self.faust = FoldingApp(
            name,
            **broker_settings(pipeline.client_config()),
            store="memory://",
            datadir=folder,
            web_enabled=False,
            topic_disable_leader=True,
            topic_partitions=partitions,
            topic_replication_factor=replication,
            consumer_auto_offset_reset="earliest",
            broker_max_poll_records=FOLDED_RECORDS,
            broker_session_timeout=SESSION,
            broker_heartbeat_interval=SESSION / 4,
            broker_commit_interval=1.0,
            stream_buffer_maxsize=BUFFERED,
            stream_wait_empty=False,  # what is under way at the end is read again: waiting for it may take for ever
        )
        self.faust.folded_topics = frozenset(
            {pipeline.comparison.topic, *([pipeline.labels.topic] if pipeline.labels else [])}
        )
        self._comparison_topic = self._topic(pipeline.comparison.topic)
        self._evaluation_topic = self._topic(pipeline.comparison.evaluations)
        self._by_event = self._topic(f"{name}-labels", internal=True)
        self._by_pair = self._topic(f"{name}-parts", internal=True)
        self._chunks = self._table("chunks")
        self._parts = self._table("parts")
        self._joins = Joins(join_settings(pipeline), self._chunks.data, self._known, metrics)
        self._merges = Merges(pipeline, self._parts.data, self._known, metrics, sources=partitions)
        self._register()

    def _topic(self, name: str, *, internal: bool = False) -> Any:
        return self.faust.topic(
            name,
            key_type=bytes,
            value_type=bytes if internal else None,
            key_serializer="raw",
            value_serializer="raw",
            internal=internal,
            partitions=self._partitions if internal else None,
        )

    def _table(self, name: str) -> Any:
        return self.faust.Table(name, partitions=self._partitions, key_type=bytes, value_type=bytes)

    def _register(self) -> None:
        self._agent(self._comparison_topic, self._on_comparisons)
        self._agent(self._by_pair, self._on_part)
        if self._pipeline.labels is not None:
            self._agent(self._topic(self._pipeline.labels.topic), self._on_labels)
            self._agent(self._by_event, self._on_labels_by_event)
        self.faust.on_partitions_revoked.connect(self._forget)
        self.faust.on_partitions_assigned.connect(self._forget_others)
        # What was under way may have asked for a join while the tables were not whole.
        self.faust.on_rebalance_complete.connect(self._forget)
        self.faust.task(self._update_for_ever)

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
        if self._progress is not None:
            self._progress.clear()
        self._metrics.forget(m.LAG)
        self._health.ready = False
        self._health.waiting_for = "the tables to be restored"

    async def _forget_others(self, _app: Any, /, *arguments: Any, **__: Any) -> None:
        """Let go what the tables hold of partitions that went elsewhere, which Faust keeps where it was written here."""
        await self._forget()
        (assigned,) = arguments
        for table in (self._chunks, self._parts):
            changelog = table.changelog_topic.get_topic_name()
            ours = {b"%d" % place.partition for place in assigned if place.topic == changelog}
            for key in [key for key in table.data if key.split(b"/", 1)[0] not in ours]:
                table.data.pop(key, None)

    # What comes.

    async def _on_comparisons(self, event: Any) -> None:
        records = event.value
        comparisons, bad = await self._with_schemas(
            event, lambda: self._decoder.decode([record.value for record in records])
        )
        self._metrics.count(m.READ, len(records), "comparisons")
        self._metrics.leave_out(len(bad), "undecodable", next(iter(bad.values()), None))
        comparisons, others = comparisons.of_pairs(self._known)
        self._metrics.leave_out(len(others), "unknown_pair", next(iter(others), None))
        rows = self._scoring.rows(comparisons, np.array([record.offset for record in records], np.int64))
        partition = event.message.partition
        await self._write(self._chunks, partition, self._joins.comparisons(partition, rows, comparisons.pairs))
        self._compared += len(records)

    async def _on_labels(self, event: Any) -> None:
        reader, records = self._labels, event.value
        assert reader is not None
        columns = [[getattr(record, name) for record in records] for name in ("value", "partition", "offset")]
        ids, rows, bad = await self._with_schemas(event, lambda: reader.rows(*columns))
        self._metrics.count(m.READ, len(records), "labels")
        self._metrics.leave_out(bad, "bad_labels")
        places = np.array([self._partition_of(event_id) for event_id in ids], np.int64)
        sent = [
            await self._by_event.send(value=rows[places == partition].tobytes(), partition=partition)
            for partition in np.unique(places).tolist()
        ]
        if sent:
            await asyncio.gather(*sent)

    def _partition_of(self, event_id: str) -> int:
        """Where the event's comparison is: its key is the id, placed as Java's clients do."""
        return int((murmur2(event_id.encode()) & 0x7FFFFFFF) % self._partitions)

    async def _on_labels_by_event(self, event: Any) -> None:
        try:
            rows = rows_of(event.value or b"", LABEL_ROW)
        except DamagedRecordError as error:
            self._metrics.leave_out(1, "damaged", error)
            return
        good = are_labels(rows["value"], regression=self._scoring.regression)
        self._metrics.leave_out(int((~good).sum()), "damaged", "a label of another value")
        rows = rows[good]
        partition = event.message.partition
        await self._write(self._chunks, partition, self._joins.labels(partition, rows))

    async def _on_part(self, event: Any) -> None:
        partition = event.message.partition
        await self._write(self._parts, partition, self._merges.put(partition, event.value))

    async def _with_schemas(self, event: Any, work: Callable[[], Any]) -> Any:
        """The result of decoding this event's records, in a thread; waits while the schemas are away."""
        first, topic = event.value[0], event.message.topic
        what = f"records of {topic}/{first.partition} from offset {first.offset} on"
        return await with_schemas(work, what, lambda: self._metrics.count(m.RETRIES))

    async def _write(self, table: Any, partition: int, writes: Iterable[Write]) -> None:
        """Write to a table and its changelog, and wait until that has it.

        Faust's own `table[key] = value` only works in a stream, and the flush before its commits does not wait for long.
        """
        sent = []
        for key, value in writes:
            if value is None:
                table.data.pop(key, None)
                sent.append(table.send_changelog(partition, key, None, value_serializer="raw"))
            else:
                table.data[key] = value
                sent.append(table.send_changelog(partition, key, value))
        if sent:
            await asyncio.gather(*sent)

    # What goes.

    async def _update_for_ever(self) -> None:
        pause = self._pipeline.comparison.update_every
        while not self.faust.should_stop:
            await self.faust.sleep(pause)
            if self.faust.rebalancing or self.faust.should_stop:
                continue
            started = time.monotonic()
            await self._update()
            took = time.monotonic() - started
            self._metrics.set(m.TICK_SECONDS, took)
            pause = max(self._pipeline.comparison.update_every, took / MOST_OF_THE_TIME)

    async def _update(self) -> None:
        """Write the results of what changed; stop where the assignment changes meanwhile."""
        self._health.turn()
        self._health.ready = True
        for partition in self._assigned(self._by_pair):
            if self.faust.rebalancing:
                return
            writes, records = self._merges.results(partition)
            await self._write(self._parts, partition, writes)
            for start, pair, record in records:
                value = encode_result({**record, "updated_at": time.time_ns() // 1_000_000}, self._schema_id)
                await self._evaluation_topic.send(key=result_key(start, pair), value=value)
        await self._close_windows()
        for partition in self._assigned(self._comparison_topic):
            if self.faust.rebalancing:
                return
            writes, parts = self._joins.tick(partition)
            await self._write(self._chunks, partition, writes)
            for part in parts:
                # All windows of a pair meet at one place, so that it hears how far each partition is.
                place = self._partition_of(repr(part.pair))
                await self._by_pair.send(value=part.pack(), partition=place)
            await asyncio.sleep(0)
        self._look_at_lag()

    async def _close_windows(self) -> None:
        """Close the windows that no label is on its way to."""
        watermarks = {
            partition: self._joins.watermark(partition) for partition in self._assigned(self._comparison_topic)
        }
        if self._progress is not None:
            if self._lags is None:
                assert self._pipeline.labels is not None
                topics = (self._pipeline.labels.topic, self._by_event.get_topic_name())
                self._lags = LagReader(self._pipeline.client_config(), self.faust.conf.id, topics)
            try:
                lags = await asyncio.to_thread(self._lags.read)
            except TopicsError as error:  # the windows wait until the broker is there again
                log.warning("%s", error)
                return
            watermarks = dict(self._progress.look(lags, watermarks))
        for partition in self._assigned(self._comparison_topic):
            self._joins.close(partition, watermarks.get(partition, 0))

    def _assigned(self, topic: Any) -> list[int]:
        name = topic.get_topic_name()
        return sorted(place.partition for place in self.faust.consumer.assignment() if place.topic == name)

    def _look_at_lag(self) -> None:
        consumer: Any = self.faust.consumer
        behind = 0
        for place in consumer.assignment():
            if place.topic not in self.faust.folded_topics:
                continue
            end, read = consumer.highwater(place), consumer._committed_offset[place]
            if end is not None and read is not None:
                self._metrics.set(m.LAG, max(end - read, 0), place.topic, str(place.partition))
                behind += max(end - read, 0) if place.topic == self._pipeline.comparison.topic else 0
        share = self._pace.look(time.monotonic(), self._compared, behind)
        self._metrics.set(m.FITTING, 1 if share is None else share)
        if share is not None and not self._behind:
            shares = ", ".join(f"{shadow.name} {shadow.sample_rate * share:.2g}" for shadow in self._pipeline.shadows)
            log.warning(
                "the comparison job falls behind: %d comparisons are waiting. Add a process, or sample less: with these "
                "values of `sample_rate` this one would keep up: %s",
                behind,
                shares,
            )
        self._behind = share is not None
