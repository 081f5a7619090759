"""Faust's Kafka transport with three changes: it drops no records after a rebalance, folds the records of some topics, and
commits past offsets without a message.

Folding puts all records of a fetch and partition into one message. Faust runs each message in tasks of its own, which take 200
microseconds of CPU, also with `take`. A folded record takes 5 microseconds (faust-streaming 0.15.3, records of 150 bytes).

A folded message has the offset of its last record. The offsets before it are a gap for Faust, like those that compaction leaves.
Faust commits past them once the message is processed.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import faust
from aiokafka.errors import KafkaError, MessageSizeTooLargeError, RecordListTooLargeError
from faust.exceptions import NotReady, ProducerSendError
from faust.transport.drivers import aiokafka as driver
from mode.utils.queues import FlowControlEvent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

log = logging.getLogger("faust")  # these classes' log lines are Faust's own
_TOO_LARGE = (MessageSizeTooLargeError, RecordListTooLargeError)
FOLDED_RECORDS = 4000  # most records of one fetch


@dataclass(frozen=True, slots=True)
class Folded:
    """One message in place of several records. It has the fields of a record that Faust reads."""

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
        # Faust reads only committed records only if it writes in transactions itself.
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
        return {
            place: [_fold(records)] if place.topic in folded and records else records
            for place, records in found.items()
        }

    async def getmany(self, timeout: float) -> AsyncIterator[tuple[Any, Any]]:
        """Tell Faust which offsets have no message of their own, before it looks for them itself.

        Faust's own gap contains the message's offset, too. This offset then stands twice among the processed ones, and a commit
        ends there: Faust commits one message per second and partition. After offset 0, it finds no gap at all, and commits 1
        for ever, because it tests the last offset for truth (faust-streaming 0.15.3).
        """
        async for place, message in super().getmany(timeout):
            last = self._read_offset[place]
            records: Any = message.value  # of a folded message: see `_fold`
            first = records[0].offset if place.topic in self.app.folded_topics else message.offset
            # Around a rebalance, Faust's last offset is not always that before the message. The folded records' offsets are sure.
            start = first if last is None else min(first, last + 1)
            if start < message.offset and self.app.topics.acks_enabled_for(message.topic):
                self._read_offset[place] = message.offset - 1  # Faust finds no gap
                await self._add_gap(place, start, message.offset - 1)
            yield place, message


class _FoldingTransport(driver.Transport):
    Consumer: ClassVar[Any] = _FoldingConsumer


class _FlowControl(FlowControlEvent):
    """Drops the records that wait for agents only at the first resume after a rebalance, not at the second.

    Faust resumes to restore the tables, then seeks to the committed offsets, and then resumes a second time. At each resume it
    drops waiting records. Records that arrived between the seek and the second resume would be dropped, and this process would
    never read them again (faust-streaming 0.15.3).
    """

    def resume(self) -> None:
        if not self.is_active():
            super().resume()


def cause_of(error: BaseException) -> BaseException:
    """The error of the Kafka client that Faust has wrapped, or the error itself."""
    return error.__cause__ if isinstance(error, ProducerSendError) and error.__cause__ is not None else error


def is_of_records(error: BaseException) -> bool:
    """Whether the error may come from the records in progress, and not from the broker or the producer."""
    cause = cause_of(error)
    return isinstance(cause, _TOO_LARGE) or not isinstance(cause, KafkaError | NotReady)


class FoldingApp(faust.App):
    """A Faust app that gets the records of `folded_topics` folded."""

    logger = log
    folded_topics: frozenset[str] = frozenset()
    is_ending = False  # the consumer and the producer stop, or have stopped

    async def give_up(self, error: Exception) -> NoReturn:
        """End the job with this error. It never returns: Faust would commit past the records in progress."""
        if not self.is_ending:
            await self.crash(error)
        await asyncio.Event().wait()
        raise AssertionError("nothing sets the event")

    @cached_property
    def flow_control(self) -> _FlowControl:
        """See `_FlowControl`."""
        return _FlowControl(loop=self.loop)

    def _new_transport(self) -> _FoldingTransport:
        return _FoldingTransport(self.conf.broker_consumer, self)


def _fold(records: list[Any]) -> Folded:
    last = records[-1]
    return Folded(last.topic, last.partition, last.offset, last.timestamp, last.timestamp_type, records)
