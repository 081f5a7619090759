"""Measures how far a group is behind its topics. It asks the broker, so it also works without workers."""

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from millstream.topics.admin import Admin
from millstream.topics.client_log import client_log
from millstream.topics.coordinator import UNREADY_ADVICE, UNREADY_ERRORS
from millstream.topics.errors import BrokerUnreachableError
from millstream.topics.partitions import partitions_of
from millstream.topics.records import TRANSIENT_ERRORS, asked_again
from millstream.topics.unreachable import unreachable

ANSWER_TIMEOUT = 10.0  # seconds
UNANSWERED_ERRORS = TRANSIENT_ERRORS | {KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE, KafkaError._WAIT_COORD}
"""Errors of requests that no broker has answered."""
FORBIDDEN_ERRORS = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED}
FORBIDDEN_ADVICE = "Grant READ on the topics and DESCRIBE on the group to the user of `kafka.client`"
# Offsets of a partition that are read to count its records. If it is further behind, the rest is estimated.
MAX_COUNTED_OFFSETS = 1000
# It needs single records, not megabytes. The wait is how long the broker holds a fetch without records, and so how long it takes
# to find out that only control records are left.
CONSUMER_PROPERTIES = {"fetch.wait.max.ms": 20, "fetch.message.max.bytes": 65_536, "queued.max.messages.kbytes": 4096}

Place = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The lag of one partition.

    Offsets are not events: a transaction's end takes an offset, an aborted transaction's records keep theirs, and compaction
    leaves holes. So the records are counted. Of more than `MAX_COUNTED_OFFSETS` offsets, only the first are counted, and the
    others are assumed to hold as many records in proportion.
    """

    topic: str
    partition: int
    committed: int | None  # offset of the next record the group reads; None: nothing committed yet
    start: int  # the next offset that the group reads: the committed one, or that of the oldest remaining record
    end: int  # offset after the last readable record; records of an open transaction come later
    messages: int  # records from `start` to `end`
    counted: bool  # whether `messages` is exact
    seconds: float | None  # age of the oldest unprocessed record, by its timestamp; None if it can't be read in time
    deleted: int  # offsets that retention has deleted before the group read them
    held_back: int = 0  # offsets from `end` on, which can't be read before the open transaction at `end` ends
    past_end: int = 0  # offsets by which the committed one is past the last record
    begin: int = 0  # offset of the oldest remaining record
    timestamp: int | None = (
        None  # ms since the epoch, of the oldest unprocessed record; None: there is none, or it isn't known
    )


@dataclass(frozen=True, slots=True)
class Bounds:
    """The offsets of a partition's backlog."""

    committed: int  # negative: nothing is committed
    low: int  # the oldest remaining offset
    start: int
    end: int  # the end for readers of committed records
    stored: int  # offset after the last record, readable or not

    @property
    def past_end(self) -> int:
        """By how much the committed offset is past the last record."""
        return max(self.committed - self.stored, 0)


@dataclass(slots=True)
class Sample:
    """The first records of a partition's backlog."""

    start: int
    end: int
    records: int = 0
    next: int = 0  # offset after the last one that was read
    timestamp: int | None = None  # ms, of the first record
    whole: bool = False  # whether the sample reaches the end

    def messages(self, bounds: Bounds) -> int:
        """Records in the backlog."""
        if self.whole:
            return self.records
        seen = max(self.next - self.start, 1)
        return max(round((bounds.end - bounds.start) * self.records / seen), self.records)


class LagReader:
    """Measures a group's lag, repeatedly over the same connections."""

    def __init__(
        self, client: Mapping[str, Any], group: str, topics: Sequence[str], *, start: str = "earliest"
    ) -> None:
        """Args:
        client: settings of a Kafka client.
        group: the group.
        topics: the topics that it reads.
        start: where it starts in a partition without a committed offset: `earliest`, or `latest`, which means no lag.
        """
        self._bootstrap = str(client["bootstrap.servers"])
        self._group = group
        self._topics = topics
        self._from_end = start == "latest"
        self._samples: dict[Place, Sample] = {}
        # Why a topic's records can't be read. The client says it only once for each partition.
        self._refused: dict[str | None, KafkaError] = {}
        # These consumers never subscribe, so they are not members of the group.
        mine = {**client, "group.id": group, "enable.auto.commit": False}
        # The first one gets the committed offsets at once. A consumer that reads committed records gets them only when no open
        # transaction has newer ones: seconds later if workers commit all the time, and never if one hangs. That one is only for
        # samples.
        self._consumer = Consumer({**mine, "isolation.level": "read_uncommitted"}, logger=client_log("lag"))
        self._sampler_settings = {
            **mine,
            **CONSUMER_PROPERTIES,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
        self._sampler = Consumer(self._sampler_settings, logger=client_log("lag"))
        self._admin = Admin(client)

    def read(self) -> list[PartitionLag]:
        """The lag of every partition, by topic and number.

        Raises:
            BrokerUnreachableError: no broker answers, or not as needed.
            TopicError: a topic does not exist.
        """
        with self._errors_translated():
            bounds = self._bounds()
            self._samples = self._sampled({p: b for p, b in bounds.items() if b.start < b.end})
        now = time.time()
        return [_lag(place, bound, self._samples.get(place), now) for place, bound in bounds.items()]

    def read_past_end(self) -> dict[Place, tuple[int, int]]:
        """The committed offset and the end of each partition that ends below that offset. Raises as `read`."""
        with self._errors_translated():
            return {p: (bound.committed, bound.stored) for p, bound in self._bounds().items() if bound.past_end}

    def read_since(self, time: int) -> dict[Place, int]:
        """The offset of each partition's first record of this time (ms since the epoch) or later. Negative: there is none.

        Raises as `read`.
        """
        with self._errors_translated():
            places = [(topic, number) for topic in self._topics for number in self._numbers(topic)]
            return self._offsets(places, OffsetSpec.for_timestamp(time))

    def close(self) -> None:
        """Close the connections."""
        self._sampler.close()
        self._consumer.close()

    @contextmanager
    def _errors_translated(self) -> Iterator[None]:
        """Raise BrokerUnreachableError in place of KafkaException."""
        try:
            yield
        except KafkaException as error:
            cause = error.args[0]
            if cause.code() in UNANSWERED_ERRORS:
                raise unreachable(self._bootstrap, cause, self._admin.causes) from None
            forbidden = cause.code() in FORBIDDEN_ERRORS
            raise self._unread(cause, FORBIDDEN_ADVICE if forbidden else "Look into the broker's log") from None

    def _numbers(self, topic: str) -> list[int]:
        numbers = partitions_of(self._consumer, topic, ANSWER_TIMEOUT)
        # The admin client finds partitions and leaders only in what it has been told before. Without this, it would not know new
        # ones for up to five minutes. It isn't asked first: it would create a topic where the broker allows that.
        self._admin.list_topics(topic, timeout=ANSWER_TIMEOUT)
        return numbers

    def _bounds(self) -> dict[Place, Bounds]:
        places = [(topic, number) for topic in self._topics for number in self._numbers(topic)]
        # Committed offsets first: if workers go on meanwhile, the lag is then a little too large, but never negative.
        committed = self._committed(places)
        lows = self._offsets(places, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        # Before the ends: what comes in between must not look as if an open transaction held it back.
        stored = self._offsets(places, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)  # type: ignore[no-untyped-call]
        ends = self._offsets(places, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        return {
            place: self._bound(found.offset, lows[place], ends[place], stored[place])
            for place, found in zip(places, committed, strict=True)
        }

    def _committed(self, places: list[Place]) -> list[TopicPartition]:
        wanted = [TopicPartition(*place) for place in places]
        try:
            return asked_again(lambda: self._consumer.committed(wanted, timeout=ANSWER_TIMEOUT), UNREADY_ERRORS)
        except KafkaException as error:
            cause = error.args[0]
            if cause.code() in UNANSWERED_ERRORS:
                # The client reports a missing coordinator as a timeout. This call raises an error if no broker answers at all.
                self._consumer.list_topics(self._topics[0], timeout=ANSWER_TIMEOUT)
                self._require_group()
            elif cause.code() not in UNREADY_ERRORS:
                raise
            raise self._unread(cause, f"The group's coordinator isn't ready: try again. {UNREADY_ADVICE}") from None

    def _require_group(self) -> None:
        """Raise KafkaException if this user may not describe the group: the consumer's requests only time out then."""
        try:
            self._admin.describe_consumer_groups([self._group])[self._group].result(ANSWER_TIMEOUT)
        except KafkaException as error:
            if error.args[0].code() in FORBIDDEN_ERRORS:
                raise

    def _unread(self, cause: KafkaError, advice: str) -> BrokerUnreachableError:
        return BrokerUnreachableError(f"the lag can't be read from {self._bootstrap}: {cause.str()}. {advice}.")

    def _bound(self, committed: int, low: int, end: int, stored: int) -> Bounds:
        # A negative offset means that nothing is committed. Deleted records are not lag.
        start = end if committed < 0 and self._from_end else max(committed, low)
        return Bounds(committed, low, start, end, stored)

    def _offsets(
        self, places: list[Place], spec: OffsetSpec, isolation: IsolationLevel = IsolationLevel.READ_COMMITTED
    ) -> dict[Place, int]:
        """One offset of each partition. By default, the end is that of readers of committed records."""

        def ask() -> dict[Place, int]:
            answers: dict[TopicPartition, Future[Any]] = self._admin.list_offsets(
                {TopicPartition(*place): spec for place in places},
                isolation_level=isolation,
                request_timeout=ANSWER_TIMEOUT,
            )
            return {(place.topic, place.partition): int(answer.result().offset) for place, answer in answers.items()}

        return asked_again(ask, {KafkaError.NOT_LEADER_FOR_PARTITION})  # a leader may not know yet that it is one

    def _sampled(self, bounds: dict[Place, Bounds]) -> dict[Place, Sample]:
        """Read the first records of each backlog. A sample is reused if its partition has not changed."""
        samples: dict[Place, Sample] = {}
        open_: dict[Place, Sample] = {}
        for place, bound in bounds.items():
            before = self._samples.get(place)
            if before is not None and before.start == bound.start and _still_holds(before, bound):
                samples[place] = before
            else:
                samples[place] = open_[place] = Sample(bound.start, bound.end, next=bound.start)
        if open_:
            self._read_samples(open_)
        return samples

    def _read_samples(self, open_: dict[Place, Sample]) -> None:
        self._sampler.assign([TopicPartition(*place, sample.start) for place, sample in open_.items()])
        waiting = dict(open_)
        until = time.monotonic() + ANSWER_TIMEOUT / 2
        while waiting and time.monotonic() < until:
            # `consume` waits until it has all records that it may return, so `poll` waits for the first one.
            first = self._sampler.poll(0.1)
            found = [] if first is None else [first, *self._sampler.consume(MAX_COUNTED_OFFSETS, 0)]
            for message in found:
                self._note_refusal(message)
            done = {place for message in found if (place := _take(message, waiting)) is not None}
            for place in done:
                del waiting[place]
            if done and waiting:
                self._sampler.incremental_unassign([TopicPartition(*place) for place in done])
        self._sampler.unassign()
        for topic, _ in waiting:
            if topic in self._refused:
                raise KafkaException(self._refused[topic])
        if any(sample.timestamp is None for sample in waiting.values()):
            # Perhaps the topic was created anew, and the client never reads it: see `millstream.consumers.source.fetch_check`.
            self._sampler.close()
            self._sampler = Consumer(self._sampler_settings, logger=client_log("lag"))

    def _note_refusal(self, message: Message) -> None:
        error = message.error()
        if error is None:
            self._refused.pop(message.topic(), None)
        elif error.code() in FORBIDDEN_ERRORS:
            self._refused[message.topic()] = error


def _still_holds(sample: Sample, bounds: Bounds) -> bool:
    if sample.timestamp is None:
        return sample.whole and sample.end == bounds.end
    return sample.end == bounds.end or (not sample.whole and sample.next - sample.start >= MAX_COUNTED_OFFSETS)


def _take(message: Message, waiting: Mapping[Place, Sample]) -> Place | None:
    """Add a record or a partition's end to its sample. Returns the place if its sample is complete."""
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    if topic is None or partition is None or offset is None:
        return None
    place = (topic, partition)
    sample = waiting.get(place)
    if sample is None:
        return None
    error = message.error()
    if error is not None:
        sample.whole = error.code() == KafkaError._PARTITION_EOF
        return place if sample.whole else None
    if offset >= sample.end:  # written after the measurement began
        sample.whole = True
        return place
    if sample.timestamp is None:
        sample.timestamp = message.timestamp()[1]
    sample.records += 1
    sample.next = offset + 1
    sample.whole = sample.next == sample.end
    return place if sample.whole or sample.next - sample.start >= MAX_COUNTED_OFFSETS else None


def _lag(place: Place, bounds: Bounds, sample: Sample | None, now: float) -> PartitionLag:
    messages, seconds, counted = 0, 0.0 if bounds.start >= bounds.end else None, True
    if sample is not None and (sample.whole or sample.records):
        messages, counted = sample.messages(bounds), sample.whole
        seconds = 0.0 if sample.timestamp is None else max(now - sample.timestamp / 1000, 0.0)
    elif bounds.start < bounds.end:  # not read in time: the offsets must do
        messages, counted = bounds.end - bounds.start, False
    return PartitionLag(
        topic=place[0],
        partition=place[1],
        committed=bounds.committed if bounds.committed >= 0 else None,
        start=bounds.start,
        end=bounds.end,
        messages=messages,
        counted=counted,
        seconds=seconds,
        deleted=max(bounds.low - bounds.committed, 0) if bounds.committed >= 0 else 0,
        held_back=max(bounds.stored - bounds.end, 0),
        past_end=bounds.past_end,
        begin=bounds.low,
        timestamp=None if sample is None else sample.timestamp,
    )
