"""A Kafka consumer in memory, which `Source` and `Starts` call as confluent-kafka's: one member, and the broker it talks to."""

from __future__ import annotations

import time
from collections import defaultdict
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, KafkaError, KafkaException, TopicPartition

from tests.consumers.in_memory import MemoryRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.consumers.record_types import Partition


class Message(MemoryRecord):
    """A record that the client hands over."""

    def error(self) -> KafkaError | None:
        return None


class Event:
    """What the client hands over in a record's place."""

    def __init__(self, code: int, partition: Partition) -> None:
        self._error = KafkaError(code)
        self._partition = partition

    def error(self) -> KafkaError:
        return self._error

    def topic(self) -> str:
        return self._partition[0]

    def partition(self) -> int:
        return self._partition[1]


def failure(code: int, reason: str = "no", **kinds: bool) -> KafkaException:
    """What a call of the client raises; `retriable` and the like are as librdkafka says them."""
    return KafkaException(KafkaError(code, reason, **kinds))


class FakeConsumer:
    """Gives what the test put there, and does what the client promises; callbacks run inside `consume`.

    The broker's side: `logs` (how many records each partition has), `lows` (the first that is still there) and `committed`.
    `next_failures` holds, by the name of a call, what its next calls raise. `calls` holds the names of all calls.
    """

    __slots__ = ("__dict__", "after_header", "and_more")
    # Two words behind the header, where confluent-kafka's object keeps others: the source looks there, and reads one by one.

    def __init__(self, logs: Mapping[Partition, int]) -> None:
        self.logs = dict(logs)
        self.lows: dict[Partition, int] = {}
        self.fetched_ends: dict[Partition, int] = {}  # what the client knows where it has not learned the end
        self.committed_offsets: dict[Partition, tuple[int, str]] = {}
        self.next_failures: defaultdict[str, list[Exception]] = defaultdict(list)
        self.calls: list[str] = []
        self.assigned: dict[Partition, int] = {}  # where each is begun
        self.positions: dict[Partition, int] = {}  # of those that were read
        self.paused: set[Partition] = set()
        self.generation = 0  # of the group: another one after each rebalance
        self.config: dict[str, Any] = {}
        self.topics: list[str] = []
        self.timeouts: list[float] = []  # of the calls of `consume`
        self.closed = self.closing = False
        self.extra: list[Message | Event] = []  # handed over with the next records, whatever is assigned
        self._callbacks: list[Callable[[], object]] = []
        self._on: dict[str, Callable[..., object]] = {}

    def made(self, config: dict[str, Any], logger: object = None) -> FakeConsumer:  # noqa: ARG002
        """In place of the class `Consumer`."""
        self.config = config
        return self

    # What a test does.

    def assign(self, *partitions: Partition) -> None:
        """At the next poll."""
        self._rebalance("assign", partitions)

    def revoke(self, *partitions: Partition) -> None:
        """At the next poll."""
        self._rebalance("revoke", partitions)

    def lose(self, *partitions: Partition) -> None:
        """At the next poll."""
        self._rebalance("lost", partitions)

    @property
    def has_told(self) -> bool:
        """Whether nothing is left for the next poll: no rebalance, and no answer to an asynchronous commit."""
        return not self._callbacks

    def report(self, error: KafkaError) -> None:
        """To `error_cb`, at the next poll."""
        self._callbacks.append(lambda: self.config["error_cb"](error))

    def _rebalance(self, kind: str, partitions: Sequence[Partition]) -> None:
        def tell() -> None:
            self.generation += 1
            self._on[kind](self, [TopicPartition(*partition) for partition in partitions])

        self._callbacks.append(tell)

    # What the source calls.

    def subscribe(self, topics: list[str], **on: Callable[..., object]) -> None:
        self._called("subscribe")
        self.topics = topics
        self._on = {kind.removeprefix("on_"): call for kind, call in on.items()}

    def consume(self, limit: int, timeout: float) -> list[Message | Event]:
        self._called("consume")
        self.timeouts.append(timeout)
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()
        found, self.extra = self.extra, []
        for partition, begin in self.assigned.items():
            if partition in self.paused:
                continue
            at = self.positions.get(partition, begin)
            stop = min(self.logs.get(partition, 0), at + limit - len(found))
            found += [Message(offset, b"%d" % offset, partition) for offset in range(at, stop)]
            if stop > at:
                self.positions[partition] = stop
        if timeout and not found:
            time.sleep(min(timeout, 0.001))
        return found

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        self._called("incremental_assign")
        for p in partitions:
            committed = self.committed_offsets.get(_of(p), (0, ""))[0]
            self.assigned[_of(p)] = p.offset if p.offset >= 0 else committed

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        self._called("incremental_unassign")
        for p in partitions:
            del self.assigned[_of(p)]
            self.positions.pop(_of(p), None)
            self.paused.discard(_of(p))

    def pause(self, partitions: list[TopicPartition]) -> None:
        self._called("pause")
        self.paused |= set(map(_of, partitions))

    def resume(self, partitions: list[TopicPartition]) -> None:
        self._called("resume")
        self.paused -= set(map(_of, partitions))

    def seek(self, position: TopicPartition) -> None:
        self._called("seek")
        self.positions[_of(position)] = position.offset

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        return [TopicPartition(p.topic, p.partition, self.positions.get(_of(p), OFFSET_INVALID)) for p in partitions]

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:  # noqa: ARG002
        self._called("committed")
        if self.closing:
            raise failure(KafkaError._TIMED_OUT)
        found = ((p, self.committed_offsets.get(_of(p), (OFFSET_INVALID, ""))) for p in partitions)
        return [TopicPartition(p.topic, p.partition, offset, metadata) for p, (offset, metadata) in found]

    def commit(self, offsets: list[TopicPartition], *, asynchronous: bool = True) -> None:
        """One that is asynchronous is there at the next poll, or refused with what `next_failures` holds for `on_commit`."""
        self._called("commit")
        if not asynchronous:
            self._commit(offsets)
            return

        def answer() -> None:
            failures = self.next_failures["on_commit"]
            error = failures.pop(0).args[0] if failures else None
            if error is None:
                self._commit(offsets)
            self.config["on_commit"](error, offsets)

        self._callbacks.append(answer)

    def _commit(self, offsets: list[TopicPartition]) -> None:
        self.committed_offsets |= {_of(p): (p.offset, p.metadata or "") for p in offsets}

    def get_watermark_offsets(
        self,
        partition: TopicPartition,
        timeout: float = 0,  # noqa: ARG002
        cached: bool = False,
    ) -> tuple[int, int]:
        self._called("get_watermark_offsets")
        if cached and _of(partition) not in self.positions:
            return OFFSET_INVALID, OFFSET_INVALID
        end = self.logs.get(_of(partition), 0)
        return self.lows.get(_of(partition), 0), self.fetched_ends.get(_of(partition), end) if cached else end

    def offsets_for_times(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:  # noqa: ARG002
        self._called("offsets_for_times")
        offsets = {OFFSET_BEGINNING: self.lows, OFFSET_END: self.logs}
        return [TopicPartition(p.topic, p.partition, offsets[p.offset].get(_of(p), 0)) for p in partitions]

    def list_topics(self, topic: str, timeout: float) -> object:  # noqa: ARG002
        self._called("list_topics")
        found = SimpleNamespace(error=None, partitions={number: None for name, number in self.logs if name == topic})
        return SimpleNamespace(topics={topic: found})

    def consumer_group_metadata(self) -> object:
        self._called("consumer_group_metadata")
        return f"generation {self.generation}"

    def close(self) -> None:
        self._called("close")
        self.closing = True  # from here on the client answers no question about committed offsets
        if self.assigned:
            self._on["revoke"](self, [TopicPartition(*partition) for partition in self.assigned])
        self.closed = True

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if self.next_failures[name]:
            raise self.next_failures[name].pop(0)


def _of(position: TopicPartition) -> Partition:
    return position.topic, position.partition
