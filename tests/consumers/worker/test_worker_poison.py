"""Bad events: each goes to the dead-letter topic whole, by itself, and the others are answered as if it were not there."""

from __future__ import annotations

import io
import json
import math
import os
import random
import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from confluent_kafka import KafkaException, Producer

from benchmarks.load import VECTOR_LENGTH, VECTOR_SCHEMA, VECTOR_SCHEMA_ID, vector_events
from millstream.consumers.cli import main as cli
from millstream.consumers.observability import metrics as m
from millstream.schemas.dead_letters import DeadLetter, decode_dead_letter
from millstream.schemas.wire import frame
from tests.broker.clients import Headers, Row, produce, read_all
from tests.consumers.processes import Worker
from tests.consumers.service import Service, id_of, prediction_of, value_of, vector_service, write_service
from tests.inference.models import looking_up

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from confluent_kafka import Message

    from tests.broker.choice import Broker

GOOD, BAD = 100_000, 1000
HEADERS: Headers = [("traceparent", b"00-aa"), ("twice", b"\x00\xff"), ("twice", None)]


def _with_features(features: list[float]) -> bytes:
    out = io.BytesIO()
    event = {"id": "bad", "event_time": 1, "x": features}
    fastavro.schemaless_writer(out, fastavro.parse_schema(VECTOR_SCHEMA), event)
    return frame(VECTOR_SCHEMA_ID) + out.getvalue()


# How a good event is spoilt, so that it certainly can't be one any more -> the reason its dead letter gives.
SPOILS: list[tuple[Callable[[bytes], bytes], str]] = [
    (lambda good: b"\x01" + good[1:], "undecodable"),  # no magic byte
    (lambda good: good[:100], "undecodable"),  # its end is missing
    (lambda good: good[:4], "undecodable"),  # not even a whole head
    (lambda good: good + b"\x00", "undecodable"),  # too much
    (lambda good: b"\xff" + os.urandom(len(good)), "undecodable"),
    (lambda _: b"", "undecodable"),  # no tombstone: that has no value at all
    (lambda good: frame(77) + good[5:], "unknown_schema"),
    (lambda good: good[:-5] + struct.pack("<f", math.nan) + good[-1:], "unfit"),
    (lambda good: good[:-5] + struct.pack("<f", math.inf) + good[-1:], "unfit"),
    (lambda _: _with_features([0.5] * (VECTOR_LENGTH - 1)), "unfit"),
    (lambda _: _with_features([0.5] * (VECTOR_LENGTH + 1)), "unfit"),
]


@dataclass(frozen=True, slots=True)
class Run:
    """What a worker made of a stream with bad events in it."""

    service: Service
    sent: dict[bytes, tuple[bytes, str]]  # key of a bad event -> its value and the reason expected
    read: dict[bytes, Message]  # key of a bad event -> its record in the input topic
    written: list[Message]
    letters: list[Message]
    metrics: dict[str, float]
    started: float  # seconds since the epoch


@pytest.fixture(scope="module")
def run(kafka: Broker, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """1,000 bad events at seeded places among 100,000 good ones."""
    service = vector_service(tmp_path_factory.mktemp("poison"), kafka)
    load = vector_events(GOOD, seed=11)
    rows: list[Row] = list(zip(load.keys, load.values, strict=True))
    sent: dict[bytes, tuple[bytes, str]] = {}
    for number in range(BAD):
        spoil, reason = SPOILS[number % len(SPOILS)]
        key = b"bad-%d" % number
        sent[key] = spoil(load.values[number]), reason
        rows.append((key, sent[key][0], HEADERS))
    random.Random(11).shuffle(rows)
    started = time.time()
    with Worker(service.file) as worker:
        produce(kafka.bootstrap, service.inputs[0], rows)
        service.wait_written(GOOD + BAD)
        service.wait_committed()
        metrics = worker.metrics()
        assert worker.stop() == 0
    read = {key: message for message in read_all(kafka.bootstrap, service.inputs[0]) if (key := _key(message)) in sent}
    letters = read_all(kafka.bootstrap, service.letters)
    return Run(service, sent, read, service.predictions(), letters, metrics, started)


@pytest.mark.durable
def test_every_good_event_has_one_prediction(run: Run) -> None:
    assert sorted(map(id_of, run.written)) == [f"event-{number:010d}" for number in range(GOOD)]


@pytest.mark.durable
def test_every_bad_event_has_one_dead_letter_with_its_reason(run: Run) -> None:
    found = {_key(message): decode_dead_letter(value_of(message)).reason for message in run.letters}
    assert len(run.letters) == BAD
    assert found == {key: reason for key, (_, reason) in run.sent.items()}
    for reason in ("undecodable", "unknown_schema", "unfit"):
        expected = sum(r == reason for _, r in run.sent.values())
        assert run.metrics[f"{m.DEAD_LETTERS.name}{{reason={reason}}}"] == expected


@pytest.mark.durable
def test_dead_letter_is_the_whole_event(run: Run) -> None:
    for message in run.letters:
        key, letter = _key(message), decode_dead_letter(value_of(message))
        origin = run.read[key]
        assert (letter.key, letter.value) == (key, run.sent[key][0])
        assert list(letter.headers) == HEADERS
        assert (letter.topic, letter.partition, letter.offset) == (origin.topic(), origin.partition(), origin.offset())
        assert letter.timestamp == origin.timestamp()[1]
        assert letter.pipeline == run.service.group
        assert run.started - 1 <= letter.failed_at / 1000 <= time.time() + 1
        assert len(letter.error) > 20


@pytest.mark.durable
def test_dead_letter_says_in_its_headers_why_and_where_from(run: Run) -> None:
    for message in run.letters:
        letter = decode_dead_letter(value_of(message))
        assert dict(message.headers() or []) == {
            "millstream.reason": letter.reason.encode(),
            "millstream.error": letter.error.encode()[:1024],
            "millstream.source.topic": letter.topic.encode(),
            "millstream.source.partition": str(letter.partition).encode(),
            "millstream.source.offset": str(letter.offset).encode(),
            "millstream.pipeline": letter.pipeline.encode(),
        }


def test_events_that_the_model_rejects_stand_alone(kafka: Broker, tmp_path: Path) -> None:
    looking_up(tmp_path / "models")
    fields = [{"name": "id", "type": "string"}, {"name": "place", "type": "long"}]
    schema: Any = {"type": "record", "name": "Place", "fields": fields}
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "1-place.avsc").write_text(json.dumps(schema), encoding="utf-8")
    service = write_service(
        tmp_path, kafka, input={"format": "json", "schema": "place", "event_id": "id"}, model={"name": "m"}
    )
    places = {f"e{number}": 9 if number % 97 == 5 else number % 3 for number in range(3000)}
    rows = [(None, json.dumps({"id": event, "place": place}).encode()) for event, place in places.items()]
    with Worker(service.file) as worker:
        worker.wait_ready()
        produce(kafka.bootstrap, service.inputs[0], rows)
        service.wait_written(len(rows))
        service.wait_committed()
        assert worker.stop() == 0
    answers = {
        (row := prediction_of(message))["event_id"]: row["outputs"]["value"] for message in service.predictions()
    }
    assert answers == {event: [10.0, 20.0, 30.0][place] for event, place in places.items() if place != 9}
    letters = service.dead_letters()
    assert sorted(_event(letter) for letter in letters) == sorted(event for event, p in places.items() if p == 9)
    assert {letter.reason for letter in letters} == {"model_rejected"}
    assert all("model m version 1" in letter.error for letter in letters)


@pytest.mark.durable
def test_bad_event_that_just_fits_its_topic_fits_the_dead_letter_topic(kafka: Broker, tmp_path: Path) -> None:
    service = vector_service(tmp_path, kafka, with_topics=False)
    assert cli.run(["topics", "create", str(service.file), "--partitions", "4"]) == 0
    largest = _largest(kafka.bootstrap, service.inputs[0], lambda size: ({"value": b"\x07" * size}))
    shapes: list[dict[str, Any]] = [
        {"value": b"\x07" * largest},
        {"value": b"\x07" * 100, "key": b"k" * (largest - 200)},
        {"value": b"\x07" * 100, "headers": [("h", b"h" * (largest - 200))]},
    ]
    with Worker(service.file) as worker:
        worker.wait_ready()
        _send(kafka.bootstrap, service.inputs[0], shapes)
        worker.wait_for(lambda: service.committed() == service.input_ends(), 30, "done with the large events")
        assert worker.stop() == 0
    letters = service.dead_letters()
    assert [len(letter.value or b"") for letter in letters].count(100) == 2
    assert len([letter for letter in letters if len(letter.value or b"") == largest]) >= 1


def _largest(bootstrap: str, topic: str, shape: Callable[[int], dict[str, Any]]) -> int:
    """The largest size that the broker takes into the topic, to within 8 bytes."""
    low, high = 1_000_000, 1_100_000
    while high - low > 8:
        middle = (low + high) // 2
        try:
            _send(bootstrap, topic, [shape(middle)])
            low = middle
        except KafkaException:
            high = middle
    return low


def _send(bootstrap: str, topic: str, shapes: list[dict[str, Any]]) -> None:
    failed: list[Any] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "message.max.bytes": 2_000_000,
            "on_delivery": lambda error, _: failed.append(error) if error else None,
        }
    )
    for shape in shapes:
        producer.produce(topic, partition=0, **shape)
        producer.flush(30)
    if failed:
        raise KafkaException(failed[0])


def _event(letter: DeadLetter) -> str:
    return str(json.loads(letter.value or b"")["id"])


def _key(message: Message) -> bytes:
    key = message.key()
    assert isinstance(key, bytes)
    return key
