"""Bad events among the good while workers are killed: each has its one prediction or its one dead letter."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from millstream.consumers.observability import metrics as m
from tests.broker.clients import produce, read_all
from tests.consumers.processes import Worker
from tests.consumers.service import VECTOR_INPUT, id_of, vector_service, write_service
from tests.faults.load import LARGE, SMALL, Stream, damaged, places
from tests.faults.service import RATE, Fleet, assert_exactly_once, configure
from tests.inference.models import looking_up

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker
    from tests.consumers.service import Service

pytestmark = pytest.mark.durable
FIELDS = [{"name": "id", "type": "string"}, {"name": "place", "type": "long"}]
BATCH = 8  # events
POISONED: list[set[int]] = [{place} for place in range(BATCH)] + [set(), {0, BATCH - 1}, set(range(BATCH)), {3, 4}]
"""Batch by batch: which of its events are poison."""


def test_poison_undecodable_and_too_large_answers_while_workers_are_killed(
    kafka: Broker, tmp_path: Path, full: bool
) -> None:
    service = _places_service(tmp_path, kafka)
    configure(service, service.output, max_message_bytes=str(SMALL))
    with Stream(kafka.bootstrap, service.inputs[0], places(seed=701), RATE // 3) as stream, Fleet(service) as fleet:
        fleet.start("w0", "w1")
        for _ in range(5 if full else 1):
            fleet.wait_written()
            fleet.kill("w0", "w1")
            fleet.start("w0", "w1")
        sent = fleet.finish(stream)
    assert_exactly_once(service, sent)
    reasons = {letter.reason for letter in service.dead_letters()}
    assert reasons == {"undecodable", "model_rejected", "prediction_too_large"}


@pytest.mark.full
def test_damaged_and_oversized_events_while_workers_are_killed(kafka: Broker, tmp_path: Path, full: bool) -> None:
    """An event with a flipped bit may stay valid, with another number or ID. So the test identifies events by their offsets."""
    unnamed = {name: value for name, value in VECTOR_INPUT.items() if name != "event_id"}
    service = vector_service(tmp_path, kafka, delivery="exactly_once", input=unnamed)
    # The topic's limit is about the size of the largest events, so a dead letter that contains its event may be too large.
    configure(service, service.letters, max_message_bytes=str(LARGE))
    with Stream(kafka.bootstrap, service.inputs[0], damaged(seed=702), RATE // 3) as stream, Fleet(service) as fleet:
        fleet.start("w0", "w1")
        for _ in range(5 if full else 1):
            fleet.wait_committed(1000)
            fleet.kill("w0", "w1")
            fleet.start("w0", "w1")
        fleet.wait_committed(1000)
        sent = fleet.finish(stream)
    topic = service.inputs[0]
    assert_exactly_once(service, [replace(one, id=f"{topic}-{one.partition}-{one.offset}") for one in sent])
    events = {(event.partition(), event.offset()): event.value() or b"" for event in read_all(kafka.bootstrap, topic)}
    letters = service.dead_letters()
    assert Counter(letter.reason for letter in letters).keys() >= {"undecodable", "unknown_schema"}
    for letter in letters:
        event = events[letter.partition, letter.offset]
        assert letter.value == (event if len(event) < LARGE else None)
    assert any(letter.value is None for letter in letters)


def test_poison_at_every_position_of_a_batch(kafka: Broker, tmp_path: Path) -> None:
    """All batches are full: each starts where the one before ended."""
    service = _places_service(tmp_path, kafka, batch={"max_events": BATCH, "max_wait": "20s"})
    kinds = [place in bad for bad in POISONED for place in range(BATCH)]
    names = [f"{'bad' if bad else 'good'}-{number}" for number, bad in enumerate(kinds)]
    rows = [
        (b"key", json.dumps({"id": name, "place": 9 if bad else number % 3}).encode())
        for number, (name, bad) in enumerate(zip(names, kinds, strict=True))
    ]
    produce(kafka.bootstrap, service.inputs[0], rows, partition=0)
    with Worker(service.file) as worker:
        worker.wait_for(lambda: service.committed() == service.input_ends(), 60, "done")
        metrics = worker.metrics()
        assert worker.stop() == 0
    assert metrics[m.BATCHES.name] == metrics[f"{m.BATCHES.name}{{reason=size}}"] == len(POISONED)
    assert [id_of(message) for message in service.predictions()] == [name for name in names if name.startswith("good")]
    letters = service.dead_letters()
    assert [letter.offset for letter in letters] == [number for number, bad in enumerate(kinds) if bad]
    assert {letter.reason for letter in letters} == {"model_rejected"}


def _places_service(folder: Path, kafka: Broker, **sections: Any) -> Service:
    """A pipeline for JSON events. Its model rejects a whole batch because of one event in it."""
    looking_up(folder / "models")
    (folder / "schemas").mkdir()
    schema = {"type": "record", "name": "Place", "fields": FIELDS}
    (folder / "schemas" / "1-place.avsc").write_text(json.dumps(schema), encoding="utf-8")
    taken: Any = {"format": "json", "schema": "place", "event_id": "id"}
    exactly_once: Any = "exactly_once"
    return write_service(folder, kafka, delivery=exactly_once, input=taken, model={"name": "m"}, **sections)
