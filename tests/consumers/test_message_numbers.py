"""The numbers read from where messages keep them are those that they say; where that does not show, they are asked."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from consumers.message_numbers import Numbers, ask, find_places, numbers_of, read

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.broker.choice import Broker
    from tests.conftest import MakeTopic

BYTES = st.one_of(st.none(), st.binary(max_size=3))
MAKE: Callable[..., Any] = Message
MESSAGES = st.builds(
    MAKE,
    topic=st.sampled_from(["in", "other"]),
    partition=st.integers(0, 2**31 - 1),
    offset=st.integers(0, 2**63 - 1),
    timestamp=st.tuples(st.integers(0, 2), st.integers(-1, 2**63 - 1)),
    key=BYTES,
    value=BYTES,
    leader_epoch=st.integers(0, 2**31 - 1),
)


def lists(numbers: Numbers) -> tuple[list[int], ...]:
    return tuple(
        column.tolist() for column in (numbers.partitions, numbers.offsets, numbers.timestamps, numbers.timestamp_types)
    )


@given(st.lists(MESSAGES, min_size=1, max_size=8))
def test_read_they_are_what_is_answered(messages: list[Any]) -> None:
    said = [(m.partition(), m.offset(), *reversed(m.timestamp())) for m in messages]
    assert list(zip(*lists(read(messages, find_places(Message))), strict=True)) == said
    assert lists(ask(messages)) == lists(numbers_of(messages)) == tuple(map(list, zip(*said, strict=True)))


def test_of_records_from_a_broker(kafka: Broker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    started = time.time_ns() // 1_000_000
    for number in range(100):
        headers: list[tuple[str, str | bytes | None]] = [("name", b"value")] if number % 3 else []
        producer.produce(
            topic, b"%d" % number, b"key" if number % 2 else None, timestamp=started + number, headers=headers
        )
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "numbers"})
    partitions = consumer.list_topics(topic).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    messages: list[Any] = []
    while len(messages) < 100:
        messages += consumer.consume(100, 1)
    consumer.close()
    found = numbers_of(messages)
    assert lists(found) == lists(ask(messages))
    assert sorted(found.timestamps.tolist()) == [started + number for number in range(100)]
    assert set(found.timestamp_types.tolist()) == {1}


def nothing(**_: Any) -> Any:
    """A build that keeps the numbers somewhere else."""
    return object()


def moved(**known: Any) -> Any:
    """One that keeps the offset where the timestamp is expected, now and then."""
    kind, time_ = known["timestamp"]
    swapped = known["offset"] > 1 << 59
    offset, timestamp = (time_, known["offset"]) if swapped else (known["offset"], time_)
    return Message(partition=known["partition"], offset=offset, timestamp=(kind, timestamp))


def without_type(**known: Any) -> Any:
    """One that forgets whose time it is."""
    return Message(**{**known, "timestamp": (1, known["timestamp"][1])})


def older(offset: int) -> Any:
    """One that makes no messages with all of that."""
    return Message(offset=offset)


@pytest.mark.parametrize("build", [nothing, moved, without_type, older])
def test_a_build_that_does_not_show_where_they_are(build: Any) -> None:
    with pytest.raises(LookupError):
        find_places(build)


def test_records_that_are_no_messages_are_asked() -> None:
    class Other:
        def partition(self) -> int:
            return 3

        def offset(self) -> int:
            return 4

        def timestamp(self) -> tuple[int, int]:
            return 2, 5

    records: list[Any] = [Other(), Other()]
    assert lists(numbers_of(records)) == ([3, 3], [4, 4], [5, 5], [2, 2])
