"""A Kafka producer in memory, which the deliveries call as confluent-kafka's, and the broker that it writes to."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confluent_kafka import TopicPartition

    from millstream.consumers.record_headers import HeaderRows


class Written(NamedTuple):
    """A record."""

    topic: str
    value: bytes
    key: bytes | None
    headers: Any = None


@dataclass(frozen=True)
class Refused:
    """What a delivery report is of."""

    name: str

    def topic(self) -> str:
        return self.name


def failure(code: int, reason: str = "no", **kinds: bool) -> KafkaException:
    """What a call of the client raises; `retriable`, `txn_requires_abort` and `fatal` are as librdkafka says them."""
    return KafkaException(KafkaError(code, reason, **kinds))


class FakeProducer:
    """Queues up to `room` records, and hands them over when it is polled, flushed, or commits.

    `written` is what readers see: a transaction's records after its commit, and never those of one that was aborted. `offsets`
    are those that were committed in transactions. `next_failures` holds, by the name of a call, what its next calls raise;
    `refused` by the name of a topic why its records are not taken. `calls` holds the names of all calls.
    """

    __slots__ = ("__dict__", "after_header", "and_more")
    # Two words behind the header, where confluent-kafka's object keeps others: `Bulk` looks there, and is not used.

    def __init__(self, room: int = 1000) -> None:
        self.room = room
        self.reachable = True
        self.written: list[Written] = []
        self.offsets: dict[tuple[str, int], int] = {}
        self.group: object = None  # that the offsets went with
        self.next_failures: defaultdict[str, list[Exception]] = defaultdict(list)
        self.refused: dict[str, int] = {}
        self.calls: list[str] = []
        self.config: dict[str, Any] = {}
        self.open = False
        self._queue: list[Written] = []
        self._sent: list[Written] = []
        self._sent_offsets: dict[tuple[str, int], int] = {}

    def made(self, config: dict[str, Any], logger: object = None) -> FakeProducer:  # noqa: ARG002
        """In place of the class `Producer`."""
        self.config = config
        return self

    @property
    def transactional(self) -> bool:
        """Whether records count by transactions."""
        return "transactional.id" in self.config

    def report(self, error: KafkaError) -> None:
        """To `error_cb`, now."""
        self.config["error_cb"](error)

    def produce(self, topic: str, value: bytes, key: bytes | None, headers: Any = None) -> None:
        self._called("produce")
        if self.transactional and not self.open:
            raise failure(KafkaError._STATE, "no transaction is open")
        if len(self._queue) >= self.room:
            raise BufferError
        self._queue.append(Written(topic, value, key, headers))

    def take_all(
        self,
        topic: str,
        values: Sequence[bytes],
        keys: Sequence[bytes | None],
        headers: HeaderRows | None = None,  # noqa: ARG002
    ) -> int:
        """In bulk: as many as there is room for; nothing is reported of them."""
        self._called("bulk")
        assert self.open, "no transaction is open"
        taken = min(len(values), self.room - len(self._queue))
        self._queue += [Written(topic, values[row], keys[row], "bulk") for row in range(taken)]
        return taken

    def poll(self, timeout: float) -> int:
        self._called("poll")
        if timeout and self.reachable:
            self._hand_over()
        return 0

    def flush(self, timeout: float) -> int:  # noqa: ARG002
        self._called("flush")
        if self.reachable:
            self._hand_over()
        return len(self._queue)

    def _hand_over(self) -> None:
        queue, self._queue = self._queue, []
        for record in queue:
            if (code := self.refused.get(record.topic)) is None:
                (self._sent if self.transactional else self.written).append(record)
            elif record.headers != "bulk":
                self.config["on_delivery"](KafkaError(code, "refused"), Refused(record.topic))

    def init_transactions(self, timeout: float) -> None:  # noqa: ARG002
        self._called("init_transactions")

    def begin_transaction(self) -> None:
        self._called("begin_transaction")
        assert not self.open, "a transaction is open already"
        self.open = True

    def send_offsets_to_transaction(
        self,
        offsets: list[TopicPartition],
        group: object,
        timeout: float,  # noqa: ARG002
    ) -> None:
        self._called("send_offsets_to_transaction")
        assert self.open
        self._sent_offsets |= {(p.topic, p.partition): p.offset for p in offsets}
        self.group = group

    def commit_transaction(self, timeout: float) -> None:  # noqa: ARG002
        self._called("commit_transaction")
        assert self.open
        missed = [record for record in self._queue if record.topic in self.refused]
        self._hand_over()
        if missed:
            raise failure(self.refused[missed[0].topic], "a record is missing", txn_requires_abort=True)
        self.written += self._sent
        self.offsets |= self._sent_offsets
        self._end()

    def abort_transaction(self, timeout: float) -> None:  # noqa: ARG002
        self._called("abort_transaction")
        assert self.open
        self._end()

    def _end(self) -> None:
        self._queue, self._sent, self._sent_offsets = [], [], {}
        self.open = False

    def list_topics(self, timeout: float) -> object:  # noqa: ARG002
        self._called("list_topics")
        if not self.reachable:
            raise failure(KafkaError._TRANSPORT)
        return SimpleNamespace(brokers={1: "here"})

    def __len__(self) -> int:
        return len(self._queue)

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if self.next_failures[name]:
            raise self.next_failures[name].pop(0)


class FakeBulk:
    """In place of `Bulk`: hands a fake producer's records over, many a call."""

    def __init__(self, producer: FakeProducer, error_cb: object) -> None:
        assert error_cb is producer.config["error_cb"]
        self.produce = producer.take_all
