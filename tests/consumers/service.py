"""A pipeline of its own for a test: its folder, its topics on the broker, and what came out of it."""

from __future__ import annotations

import io
import shutil
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import fastavro
import yaml
from confluent_kafka import Consumer, Message, TopicPartition

from benchmarks.load import write_vector_model
from millstream.consumers.demo.example import example_folder
from millstream.schemas.dead_letters import DeadLetter, decode_dead_letter
from millstream.schemas.records import PREDICTION
from millstream.schemas.wire import HEAD_BYTES, schema_id_of
from millstream.topics.coordinator import UNREADY_ERRORS
from millstream.topics.embedded import EmbeddedBroker
from millstream.topics.records import asked_again, bounds
from tests.broker.clients import create_topics, ensure_topic, read_all, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tests.broker.choice import Broker

Section = dict[str, Any]
VECTOR_INPUT: Section = {"format": "avro", "schema": "vector-event", "event_id": "id", "event_time": "event_time"}
FLIGHTS_INPUT: Section = {"format": "avro", "schema": "flight-departure", "event_id": "id", "event_time": "departed_at"}


@dataclass(frozen=True, slots=True)
class Service:
    """A pipeline file and its topics."""

    file: Path
    bootstrap: str
    group: str
    inputs: tuple[str, ...]
    output: str
    letters: str

    def predictions(self) -> list[Message]:
        """All prediction records."""
        return read_all(self.bootstrap, self.output)

    def dead_letters(self) -> list[DeadLetter]:
        """All dead letters, decoded."""
        return [decode_dead_letter(value_of(message)) for message in read_all(self.bootstrap, self.letters)]

    def committed(self) -> dict[tuple[str, int], int]:
        """The group's committed offset of each input partition that has one."""
        with _asking(self.bootstrap, self.group) as consumer:
            return self._committed(consumer)

    def _committed(self, consumer: Consumer) -> dict[tuple[str, int], int]:
        asked = [TopicPartition(*place) for topic in self.inputs for place in _ends(consumer, topic)]
        found = asked_again(lambda: consumer.committed(asked, timeout=10), UNREADY_ERRORS)  # of a new broker
        return {(place.topic, place.partition): place.offset for place in found if place.offset >= 0}

    def input_ends(self) -> dict[tuple[str, int], int]:
        """The end of each input partition that holds records."""
        with _asking(self.bootstrap) as consumer:
            return {place: end for topic in self.inputs for place, end in _ends(consumer, topic).items() if end}

    def wait_written(self, count: int, timeout: float = 60) -> None:
        """Wait until the output topics hold at least so many records."""
        with _asking(self.bootstrap) as consumer:
            topics = (self.output, self.letters)
            wait_until(
                lambda: sum(sum(_ends(consumer, topic).values()) for topic in topics) >= count,
                timeout,
                f"{count} results",
            )

    def wait_committed(self, timeout: float = 30) -> None:
        """Wait until everything that is in the input topics now is committed."""
        ends = self.input_ends()
        with _asking(self.bootstrap, self.group) as consumer:
            wait_until(lambda: self._committed(consumer) == ends, timeout, f"offsets {ends} to be committed")


def write_service(
    folder: Path, kafka: Broker, *, inputs: int = 1, with_topics: bool = True, **sections: Section
) -> Service:
    """Write `pipeline.yaml` into `folder` and make its topics, each with 4 partitions; `sections` are the file's."""
    name = f"{folder.name[:60]}-{uuid.uuid4().hex[:8]}"
    topics = tuple(f"{name}-events-{number}" for number in range(inputs))
    output, letters = f"{name}-predictions", f"{name}-dead-letters"
    if with_topics:
        make_topics(kafka, (*topics, output, letters))
    document = {
        "name": name,
        "kafka": {"bootstrap": kafka.bootstrap},
        "input": {"topics": list(topics)} | sections.pop("input"),
        "output": {"topic": output} | sections.pop("output", {}),
        "dead_letters": {"topic": letters},
        **sections,
    }
    file = folder / "pipeline.yaml"
    file.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return Service(file, kafka.bootstrap, name, topics, output, letters)


def make_topics(kafka: Broker, topics: Iterable[str]) -> None:
    """Make topics of 4 partitions, on any kind of broker."""
    if kafka.durable:
        create_topics(kafka.bootstrap, dict.fromkeys(topics, (EmbeddedBroker.partitions, {})))
        return
    for topic in topics:
        ensure_topic(kafka.bootstrap, topic)


def vector_service(folder: Path, kafka: Broker, **sections: Any) -> Service:
    """A pipeline for `benchmarks.load.vector_events`. Its model is `vector`, unless `sections` have `models`."""
    write_vector_model(folder, seed=1)
    defaults: dict[str, Section] = {"input": VECTOR_INPUT, "model": {"name": "vector"}}
    if "models" in sections:
        del defaults["model"]
    return write_service(folder, kafka, **defaults | sections)


def flights_service(folder: Path, kafka: Broker, **sections: Any) -> Service:
    """A pipeline for `benchmarks.load.flights_events` and the example's model."""
    for part in ("schemas", "models"):
        shutil.copytree(example_folder() / part, folder / part)
    defaults: dict[str, Section] = {"input": FLIGHTS_INPUT, "model": {"name": "flights-delay", "version": 1}}
    return write_service(folder, kafka, **defaults | sections)


def value_of(message: Message) -> bytes:
    """The value, which must be there."""
    value = message.value()
    assert isinstance(value, bytes)
    return value


def prediction_of(message: Message) -> dict[str, Any]:
    """The Avro prediction in a record; times are integers."""
    value = value_of(message)
    assert schema_id_of(value) == PREDICTION.reserved_id
    row: Any = fastavro.schemaless_reader(io.BytesIO(value[HEAD_BYTES:]), _prediction_schema(), None)
    assert isinstance(row, dict)
    return row


def id_of(message: Message) -> str:
    """The event id of an Avro prediction: its first field, so the rest need not be read."""
    value = value_of(message)
    length, low = value[HEAD_BYTES], value[HEAD_BYTES + 1]
    if length < 0x80:  # one byte of zigzag varint
        return value[HEAD_BYTES + 1 : HEAD_BYTES + 1 + (length >> 1)].decode()
    size = ((low << 7) | (length & 0x7F)) >> 1
    return value[HEAD_BYTES + 2 : HEAD_BYTES + 2 + size].decode()


@cache
def _prediction_schema() -> Any:
    return fastavro.parse_schema(PREDICTION.definition)


@contextmanager
def _asking(bootstrap: str, group: str = "asking") -> Iterator[Consumer]:
    """A client that only asks: it never becomes a member of the group."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    try:
        yield consumer
    finally:
        consumer.close()


def _ends(consumer: Consumer, topic: str) -> dict[tuple[str, int], int]:
    numbers = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    return {(topic, number): bounds(consumer, topic, number)[1] for number in numbers}
