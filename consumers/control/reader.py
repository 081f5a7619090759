"""Reads the control topic without a consumer group: to its end once, and then whatever comes."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from millstream.consumers.control.errors import ControlTopicError
from millstream.consumers.control.state import ControlState, Decode, Seen
from millstream.schemas.errors import SchemaUnavailable
from millstream.topics.client_log import client_log
from millstream.topics.quick_connect import QUICK_CONNECT
from millstream.topics.records import ANSWER_TIMEOUT, PASSING_ERRORS, bounds, unreadable
from millstream.topics.unreachable import LEADERLESS_ERRORS, unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.consumers.rollout.record import RolloutRecord

MAX_READ_RECORDS: Final = 500  # records of one read
READ_TIMEOUT: Final = 0.2  # seconds that a read waits for records
CHECK_EVERY: Final = 30.0  # seconds between two looks at whether the topic is still the same one
STUCK_TIMEOUT: Final = 30.0  # seconds without progress, after which the end can't be reached; transactions last 10 s
_GONE: Final = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}


class ControlReader:
    """See the module. It keeps the last state, whatever happens. A context manager, for one thread."""

    def __init__(
        self,
        client: Mapping[str, Any],
        topic: str,
        pipeline: str,
        decode: Decode,
        say: Callable[[str], object] = lambda _text: None,
    ) -> None:
        """Doesn't connect yet.

        Args:
            client: the settings of the Kafka client.
            topic: the control topic.
            pipeline: name of the pipeline, the records' key.
            decode: as `RolloutDecoder.decode`.
            say: gets each new problem once: a record that can't be read or doesn't count, a topic that can't be read.
        """
        self._topic = topic
        self._decode = decode
        self._say = say
        self._state = ControlState(pipeline)
        self._waiting = deque[Any]()  # messages whose schema can't be had at the moment, and those behind them
        self._seen: list[Seen] = []  # not returned yet: a call that raises leaves them to the next one
        self._reached = -1  # the next offset to come; -1: not assigned yet
        self._trouble = ""  # why the topic can't be read at the moment
        self._newest: tuple[int, bytes | None] | None = None  # offset and value of the record that is the state
        self._known = 0  # offsets below it were read; they come again while `_newest` is looked at
        self._checking = False  # whether the next message should be `_newest`
        self._checked = time.monotonic()
        self._bootstrap = str(client["bootstrap.servers"])
        self._settings = {
            **QUICK_CONNECT,
            **client,
            "group.id": "millstream-control",  # required by the client, which never joins it
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            # Only new metadata shows that the topic was deleted, or created anew. The client's default is 5 minutes.
            "topic.metadata.refresh.interval.ms": 5000,
            "topic.metadata.propagation.max.ms": 5000,
            "error_cb": self._on_error,
            "fetch.wait.max.ms": 100,  # the broker reports the end of the topic after this time
        }
        self._consumer = Consumer(self._settings, logger=client_log("control"))
        self._gone = False  # whether the client has said that it doesn't find the topic

    @property
    def record(self) -> RolloutRecord | None:
        """The newest record that counts; None: there was no rollout yet, or `problem` says why it isn't known."""
        return self._state.record

    @property
    def unknown(self) -> bool:
        """Whether there is a state, but nobody can tell which: its record can't be read, and older ones are gone."""
        return self._state.unknown

    @property
    def problem(self) -> str:
        """Why the newest state may be unknown here: a sentence; empty if the topic can be read."""
        return self._trouble or self._state.problem

    def read_to_end(self) -> list[Seen]:
        """Read all records that are committed now; returns the new ones of this pipeline.

        If it raises, the next call returns also those that this one has read.

        Raises:
            BrokerUnreachableError: no broker answers.
            ControlTopicError: the topic does not exist, or can't be read.
            SchemaUnavailable: a record's schema can't be had at the moment. Call it again: it goes on with that record.
        """
        try:
            end = self._end()
        except KafkaException as error:
            if error.args[0].code() in _GONE:
                raise self._missing() from None
            raise unreachable(self._bootstrap, error.args[0]) from None
        self._trouble = ""  # what was wrong before may be over
        self._look_again()
        self._take()
        moved = time.monotonic()
        while self._reached < end:
            if self._fetch(READ_TIMEOUT):
                moved = time.monotonic()
            elif self._trouble or time.monotonic() - moved > STUCK_TIMEOUT:
                raise ControlTopicError(
                    f"topic {self._topic} can't be read to its end: {self._trouble or 'the broker does not answer'}. Try again."
                )
            self._take()
        return self._new()

    def poll(self, timeout: float) -> list[Seen]:
        """Read what came since; wait up to `timeout` seconds for the first record. Call `read_to_end` once before.

        It raises nothing: what can't be read is in `problem`, and is tried again by the next call.
        """
        if not self._waiting:
            self._look_again()
            self._fetch(timeout)
        try:
            self._take()
        except SchemaUnavailable as error:
            self._note(f"a record's schema can't be had at the moment: {error}")
            time.sleep(timeout)  # the record is there already, so the call would not wait
        return self._new()

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _end(self) -> int:
        """The offset after the last committed record. At the first call, reading begins."""
        if self._reached < 0:
            found = self._consumer.list_topics(self._topic, timeout=ANSWER_TIMEOUT).topics[self._topic]
            if found.error is not None and found.error.code() not in LEADERLESS_ERRORS:
                raise self._missing() if found.error.code() in _GONE else self._refused(found.error)
        low, end = bounds(self._consumer, self._topic, 0)
        if not low <= self._reached <= end:  # the first call, or the topic was created anew
            self._begin(low)
        return end

    def _look_again(self) -> None:
        """Read the newest record again now and then.

        If the topic was created anew, and has as many records by now, nothing else shows it. A client that doesn't give this
        record, or has lost the topic, may never read the new one (see `millstream.consumers.source.fetch_check`): another client
        takes over.
        """
        if time.monotonic() - self._checked < CHECK_EVERY:
            return
        self._checked = time.monotonic()
        renew, self._gone = self._checking or self._gone, False
        if renew:
            self._consumer.close()
            self._consumer = Consumer(self._settings, logger=client_log("control"))
        if self._newest is not None:
            self._consumer.assign([TopicPartition(self._topic, 0, self._newest[0])])
            self._known, self._reached, self._checking = max(self._known, self._reached), self._newest[0], True
        elif renew:
            self._begin(OFFSET_BEGINNING)

    def _is_known(self, message: Any) -> bool:
        """Whether a message was read before. If it shows that the topic is another one, that one is read from its beginning."""
        if self._checking:
            self._checking = False
            if (message.offset(), message.value()) != self._newest:
                self._begin(OFFSET_BEGINNING)
                return True
        if message.offset() < self._known:
            return True
        self._known = 0
        return False

    def _begin(self, offset: int) -> None:
        self._reached, self._known, self._newest, self._checking = max(offset, 0), 0, None, False
        self._consumer.assign([TopicPartition(self._topic, 0, offset)])

    def _fetch(self, timeout: float) -> bool:
        """Take what the client has; returns whether anything came."""
        first = self._consumer.poll(timeout)
        # `consume` waits until it has all records that it may return, so `poll` waits for the first one.
        found = [] if first is None else [first, *self._consumer.consume(MAX_READ_RECORDS - 1, 0)]
        came = False
        for message in found:
            error = message.error()
            if error is None:
                if not self._is_known(message):
                    self._waiting.append(message)
                elif self._newest is None:
                    return True  # what else came is of the old position
            elif error.code() != KafkaError._PARTITION_EOF:
                if error.code() not in PASSING_ERRORS:
                    self._note(str(unreadable(self._topic, error)).rstrip("."))
                continue
            else:
                self._known, self._checking = 0, False
            # The end of a transaction has an offset, too, but is not delivered.
            self._reached = (message.offset() or 0) + (error is None)
            self._trouble, came = "", True
        return came

    def _take(self) -> None:
        """Apply the records that were fetched, in order. Raises SchemaUnavailable; the record is then still the next one."""
        while self._waiting:
            message = self._waiting[0]
            found = self._state.see(message.offset(), message.key(), message.value(), self._decode)
            self._waiting.popleft()
            if found is not None:
                if found.counts:
                    self._newest = message.offset(), message.value()
                self._seen.append(found)
                self._trouble = ""
                if found.problem:
                    self._say(f"topic {self._topic}: {found.problem}")

    def _new(self) -> list[Seen]:
        seen, self._seen = self._seen, []
        return seen

    def _on_error(self, error: KafkaError) -> None:
        """A partition that is gone has no messages that could tell it. Outages of brokers are told elsewhere."""
        if error.code() in _GONE:
            self._gone = True
            self._note(f"topic {self._topic} (rollout) does not exist any more, or may not be seen by this user")

    def _note(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            self._say(trouble)

    def _missing(self) -> ControlTopicError:
        return ControlTopicError(
            f"topic {self._topic} (rollout) does not exist on {self._bootstrap}, or may not be seen by this user. Create it: "
            "millstream topics create PIPELINE"
        )

    def _refused(self, error: KafkaError) -> ControlTopicError:
        return ControlTopicError(str(unreadable(f"{self._topic} (rollout)", error)))
