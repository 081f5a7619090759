"""Predictions that include fields of their events, from the pipeline file to a reader of the topic."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import fastavro
import pytest

from benchmarks.load import FIRST_EVENT_TIME, VECTOR_SCHEMA, vector_events
from millstream.consumers.cli.tail import as_json
from millstream.schemas.directory import DirectoryStore
from millstream.schemas.records import INCLUDING_PREDICTION, OWN_SCHEMAS_FOLDER
from millstream.schemas.wire import HEAD_BYTES, schema_id_of
from millstream.topics.records import ReadRecord
from tests.broker.clients import produce
from tests.consumers.processes import Worker
from tests.consumers.python_service import python_service, send
from tests.consumers.service import value_of, vector_service

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker


def read(value: bytes, schema: Any) -> Any:
    return fastavro.schemaless_reader(io.BytesIO(value[HEAD_BYTES:]), fastavro.parse_schema(schema), None)


@pytest.mark.parametrize("delivery", ["at_least_once", pytest.param("exactly_once", marks=pytest.mark.durable)])
def test_each_avro_prediction_has_the_fields_of_its_own_event(kafka: Broker, tmp_path: Path, delivery: str) -> None:
    service = vector_service(tmp_path, kafka, delivery=delivery, output={"include": ["id", "event_time", "x"]})
    load = vector_events(500, seed=1)
    produce(kafka.bootstrap, service.inputs[0], [(None, value) for value in load.values])
    with Worker(service.file, "--until-idle") as worker:
        assert worker.wait() == 0, worker.log
    values = [value_of(message) for message in service.predictions()]
    assert {schema_id_of(value) for value in values} == {INCLUDING_PREDICTION.reserved_id}
    events = {event["id"]: event for event in (read(value, VECTOR_SCHEMA) for value in load.values)}
    found = {
        one["event_id"]: one["event"] for one in (read(value, INCLUDING_PREDICTION.definition) for value in values)
    }
    assert found.keys() == events.keys()
    for event_id, event in found.items():
        assert event["id"] == event_id
        assert event["event_time"] == FIRST_EVENT_TIME + int(event_id.removeprefix("event-"))
        assert event["x"] == events[event_id]["x"]
    shown = as_json(
        ReadRecord("t", 0, 0, -1, key=None, value=values[0], headers=()), DirectoryStore(OWN_SCHEMAS_FOLDER)
    )
    assert shown["value"]["event"]["id"] == shown["value"]["event_id"]


def test_json_prediction_has_the_fields_in_an_object(kafka: Broker, tmp_path: Path) -> None:
    output = {"format": "json", "include": ["x"]}
    service = python_service(tmp_path, kafka, 'return {"y": -inputs["x"]}', output=output)
    send(service, range(50))
    with Worker(service.file, "--until-idle") as worker:
        assert worker.wait() == 0, worker.log
    found = [json.loads(value_of(message)) for message in service.predictions()]
    assert len(found) == 50
    assert all(one["event"] == {"x": -one["outputs"]["y"]} for one in found)
