"""Updates the comparison job's results from time to time."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

from millstream.consumers.comparison import metrics as m
from millstream.consumers.comparison.falling_behind import FallingBehind
from millstream.consumers.comparison.many_windows import many_windows
from millstream.consumers.comparison.progress import LabelProgress
from millstream.consumers.comparison.results import encode_result, result_key
from millstream.consumers.comparison.streams import write
from millstream.consumers.comparison.transport import is_of_records
from millstream.consumers.schema_store import own_schema_id
from millstream.schemas.records import EVALUATION
from millstream.topics.errors import TopicsError
from millstream.topics.lag import LagReader

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from millstream.consumers.comparison.job import Joins, Merges
    from millstream.consumers.comparison.streams import Streams
    from millstream.consumers.observability.health import Health
    from millstream.pipeline.pipeline import Pipeline
    from millstream.schemas.store import SchemaStore

log = logging.getLogger(__name__)

MAX_TURN = 0.05  # seconds of an update's work, after which the loop's other work has as much time


class _InterruptedUpdateError(Exception):
    """The assignment changes, or the job stops: the update ends."""


class Updates:
    """Summarises the joins, writes the merged results, and closes windows. One task of Faust's event loop runs it."""

    def __init__(
        self,
        pipeline: Pipeline,
        store: SchemaStore,
        streams: Streams,
        *,
        joins: Joins,
        merges: Merges,
        compared: Callable[[], int],
        metrics: m.ComparisonMetrics,
        health: Health,
    ) -> None:
        """Args:
        pipeline: a pipeline with shadows.
        store: finds the schemas.
        streams: the topics and tables to write to.
        joins: the joins to summarise.
        merges: the merges, which give the results of all partitions together.
        compared: returns how many comparisons were read so far.
        metrics: the job's metrics.
        health: notified of each update.
        """
        self._pipeline = pipeline
        self._streams = streams
        self._joins = joins
        self._merges = merges
        self._compared = compared
        self._metrics = metrics
        self._health = health
        self._schema_id = own_schema_id(pipeline, store, EVALUATION, pipeline.comparison.evaluations)
        self._falling_behind = FallingBehind(pipeline, streams.faust, metrics)
        self._lags: LagReader | None = None  # reads the lags of both label topics
        self._assignments = 0  # number of changes of the assignment
        self._has_warned = False  # of too many windows
        self._resumed = 0.0  # when the update's turn began, plus the time that it has waited since then
        self._progress: LabelProgress | None = None
        if pipeline.labels is not None:
            self._progress = LabelProgress(pipeline.labels.topic, streams.by_event.get_topic_name())

    def clear(self) -> None:
        """Start again, because the assignment changes."""
        self._assignments += 1
        if self._progress is not None:
            self._progress.clear()

    async def run(self) -> None:
        """Update until the app stops."""
        while not self._streams.faust.should_stop:
            await self._streams.faust.sleep(self._pipeline.comparison.update_every)
            self._metrics.warnings.catch_up()
            if self._streams.faust.rebalancing or self._streams.faust.should_stop:
                continue
            started = time.monotonic()
            try:
                await self._update()
            except _InterruptedUpdateError:
                continue
            self._metrics.set(m.TICK_SECONDS, time.monotonic() - started)

    async def _update(self) -> None:
        """Write the results that changed. Raises _InterruptedUpdateError."""
        self._health.turn()
        self._health.ready = True
        self._resumed, assignment = time.monotonic(), self._assignments
        windows = set[int]()
        for partition in self._streams.assigned(self._streams.by_pair):
            windows |= await self._write_results(partition, assignment)
            await self._take_turns(assignment)
        await self._wait_for(self._close_windows())
        for partition in self._streams.assigned(self._streams.comparisons):
            await self._take_turns(assignment)
            await self._send_parts(partition, assignment)
        self._falling_behind.look(self._compared())
        if not self._has_warned and (warning := many_windows(self._pipeline, len(windows))):
            self._has_warned = True
            log.warning("%s", warning)

    async def _write_results(self, partition: int, assignment: int) -> set[int]:
        """Write the results of a merge that changed; returns their windows. Raises _InterruptedUpdateError."""
        windows, sent = set[int](), []
        for start, pair, record in self._merges.results(partition):
            windows.add(start)
            value = encode_result({**record, "updated_at": time.time_ns() // 1_000_000}, self._schema_id)
            sent.append(await self._wait_for(self._streams.evaluations.send(key=result_key(start, pair), value=value)))
            await self._take_turns(assignment)
        await self._wait_for_acknowledgements(sent)  # once the parts are gone, nothing could replace a lost result
        await self._take_turns(assignment)
        await self._wait_for(write(self._streams.parts, partition, self._merges.forget(partition)))
        return windows

    async def _send_parts(self, partition: int, assignment: int) -> None:
        """Send the summaries of a join that changed. Raises _InterruptedUpdateError."""
        sent = []
        for part in self._joins.parts(partition):
            # All windows of a pair go to one partition, so its merge learns how far each source partition is.
            place = self._streams.partition_of(repr(part.pair))
            sent.append(await self._wait_for(self._streams.by_pair.send(value=part.pack(), partition=place)))
            await self._take_turns(assignment)
        await self._wait_for_acknowledgements(sent)  # once the rows are gone, nothing could replace a lost summary
        await self._take_turns(assignment)
        await self._wait_for(write(self._streams.chunks, partition, self._joins.clean_up(partition)))

    async def _wait_for_acknowledgements(self, sent: list[Awaitable[object]]) -> None:
        """Wait until Kafka has these records. Those that it refuses for themselves are left out and counted; the job goes on.

        If the job can't write any more, it ends: all records would be left out.
        """
        outcomes = await self._wait_for(asyncio.gather(*sent, return_exceptions=True))
        refused = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
        final = next((error for error in refused if self._streams.faust.is_ending or not is_of_records(error)), None)
        if final is not None:
            await self._streams.faust.give_up(final)
        self._metrics.leave_out(len(refused), "undelivered", next(iter(refused), None))

    async def _wait_for(self, writes: Awaitable[Any]) -> Any:
        """Wait without counting the time as work: the loop's other work goes on meanwhile."""
        began = time.monotonic()
        found = await writes
        self._resumed += time.monotonic() - began
        return found

    async def _take_turns(self, assignment: int) -> None:
        """Give the loop's other work as much time as the update takes. An update of 1,000 windows takes seconds.

        Raises:
            _InterruptedUpdateError: the assignment has changed, or the job stops.
        """
        worked = time.monotonic() - self._resumed
        if worked >= MAX_TURN:
            self._health.turn()
            await self._streams.faust.sleep(worked)
            self._resumed = time.monotonic()
        faust = self._streams.faust
        if faust.rebalancing or faust.should_stop or assignment != self._assignments:
            raise _InterruptedUpdateError

    async def _close_windows(self) -> None:
        """Close the windows that have waited long enough, once all labels already written are joined."""
        watermarks = {
            partition: self._joins.watermark(partition)
            for partition in self._streams.assigned(self._streams.comparisons)
        }
        if self._progress is not None:
            if self._lags is None:
                assert self._pipeline.labels is not None
                topics = (self._pipeline.labels.topic, self._streams.by_event.get_topic_name())
                self._lags = LagReader(self._pipeline.client_config(), self._streams.faust.conf.id, topics)
            try:
                lags = await asyncio.to_thread(self._lags.read)
            except TopicsError as error:  # the windows stay open until the broker is back
                # In an outage, the job has said already that no broker answers.
                log.log(logging.WARNING if self._health.broker_away is None else logging.DEBUG, "%s", error)
                return
            watermarks = dict(self._progress.look(lags, watermarks))
        for partition in self._streams.assigned(self._streams.comparisons):
            self._joins.close(partition, watermarks.get(partition, 0))
