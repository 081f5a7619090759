"""Faust's Kafka transport, but for two things: no record is thrown away after a rebalance, and some come folded.

The records of some topics come as one message for each fetch and partition.

Faust handles each message in tasks of its own, 200 microseconds of CPU for each, with `take` too; folded, a record costs 5
(faust-streaming 0.15.3, records of 150 bytes). A folded message has the offset of its last record; Faust takes the offsets
before it for a gap, as compaction leaves them, and commits past it once the message is done with.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import faust
from faust.transport.drivers import aiokafka as driver
from mode.utils.queues import FlowControlEvent

log = logging.getLogger("faust")  # what is said is Faust's, not ours
FOLDED_RECORDS = 4000  # most records of one fetch


@dataclass(frozen=True, slots=True)
class Folded:
    """One message in place of several records. The fields are those that Faust reads of a record."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    value: list[Any]  # the records, in their order
    headers: tuple[()] = ()
    key: None = None
    checksum: None = None
    serialized_key_size: int = 0
    serialized_value_size: int = 0


class _ConsumerThread(driver.AIOKafkaConsumerThread):
    logger = log

    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        # Faust asks for committed records only if it writes in transactions itself.
        consumer._isolation_level = "read_committed"
        return consumer


class _FoldingConsumer(driver.Consumer):
    app: FoldingApp
    logger = log

    def _new_consumer_thread(self) -> Any:
        return _ConsumerThread(self, loop=self.loop, beacon=self.beacon)

    async def _getmany(self, active_partitions: Any, timeout: float) -> Any:
        found = await super()._getmany(active_partitions=active_partitions, timeout=timeout)
        folded = self.app.folded_topics
        messages = {
            place: [_fold(records)] if place.topic in folded and records else records
            for place, records in found.items()
        }
        for place, given in messages.items():
            # Faust sees no gap behind offset 0, for it tests the offset read before for being true: it would commit 1 for ever.
            if given and self._read_offset[place] == 0 and given[0].offset > 1:
                await self._add_gap(place, 1, given[0].offset - 1)
        return messages


class _FoldingTransport(driver.Transport):
    Consumer: ClassVar[Any] = _FoldingConsumer


class _FlowControl(FlowControlEvent):
    """Throws away what waits for agents when a rebalance suspends it, and not again when Faust resumes it a second time.

    Faust resumes it to restore the tables, seeks the streams to their committed offsets, and resumes it once more: records that
    came between the last two were thrown away, and never read again by this process (faust-streaming 0.15.3).
    """

    def resume(self) -> None:
        if not self.is_active():
            super().resume()


class FoldingApp(faust.App):
    """A Faust app to which the records of `folded_topics` come folded."""

    logger = log
    folded_topics: frozenset[str] = frozenset()

    @cached_property
    def flow_control(self) -> _FlowControl:
        """See `_FlowControl`."""
        return _FlowControl(loop=self.loop)

    def _new_transport(self) -> _FoldingTransport:
        return _FoldingTransport(self.conf.broker_consumer, self)


def _fold(records: list[Any]) -> Folded:
    last = records[-1]
    return Folded(last.topic, last.partition, last.offset, last.timestamp, last.timestamp_type, records)
