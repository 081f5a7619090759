"""The schema registry goes away under load and comes back, while workers are killed: events wait, each has its one result."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from benchmarks.load import VECTOR_SCHEMA
from millstream.consumers.observability import metrics as m
from millstream.schemas.wire import HEAD_BYTES, frame
from tests.consumers.service import VECTOR_INPUT, vector_service
from tests.faults.load import Stream, vectors
from tests.faults.service import Fleet, assert_exactly_once, change
from tests.registry.apicurio import api_url
from tests.registry.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.broker.choice import Broker
    from tests.faults.load import Event
    from tests.registry.apicurio import Apicurio


@pytest.mark.durable
def test_registry_away_then_back(kafka: Broker, registry: Apicurio, tmp_path: Path) -> None:
    client = SchemaRegistryClient({"url": registry.url})
    with Proxy(registry.port) as line:
        service = vector_service(
            tmp_path, kafka, delivery="exactly_once", schemas={"registry": {"url": api_url(line.port)}}
        )
        subject = f"{service.inputs[0]}-value"
        change(service, input={"topics": list(service.inputs), **VECTOR_INPUT, "schema": subject})

        def register(doc: str) -> int:
            """Register a version with the same fields, which gets its own ID."""
            definition = {**VECTOR_SCHEMA, "doc": doc}
            return int(client.register_schema(subject, Schema(json.dumps(definition), "AVRO")))

        ids = [register("first")]
        with Stream(kafka.bootstrap, service.inputs[0], _by_newest(ids), 500) as stream, Fleet(service) as fleet:
            fleet.start("w0", "w1")
            fleet.wait_ready()
            fleet.wait_committed(1000)
            line.cut()
            ids.append(register("second"))  # which no worker knows
            fleet["w0"].wait_for(
                lambda: fleet["w0"].metrics().get(f"{m.RETRIES.name}{{what=schemas}}", 0) >= 2, 60, "asking again"
            )
            fleet.kill("w1")
            fleet.start("w1")  # can't start without the registry, reports it and ends
            assert fleet["w1"].wait() == 1
            assert "check that the registry runs" in fleet["w1"].log.splitlines()[-1]
            assert "Traceback" not in fleet["w1"].log
            line.connect()
            fleet.start("w1")
            fleet.wait_committed(2000)
            assert_exactly_once(service, fleet.finish(stream))
        assert len(set(ids)) == len(ids)
        assert service.dead_letters() == []


def _by_newest(ids: list[int]) -> Iterator[Event]:
    """Events with the newest schema ID at the time."""
    for event in vectors(seed=1401):
        yield event._replace(value=frame(ids[-1]) + event.value[HEAD_BYTES:])
