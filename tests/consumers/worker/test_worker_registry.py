"""With a schema registry: strangers use its serializers, schemas evolve, the registry goes away and comes back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from confluent_kafka.schema_registry import Schema as RegistrySchema
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from millstream.consumers.cli import main as cli
from millstream.consumers.demo.example import example_folder
from millstream.consumers.observability import metrics as m
from millstream.schemas.records import DEAD_LETTER, PREDICTION
from millstream.schemas.wire import frame, schema_id_of
from tests.broker.clients import produce, read_all
from tests.consumers.processes import Worker
from tests.consumers.service import Service, flights_service, value_of
from tests.registry.apicurio import api_url
from tests.registry.proxy import Proxy

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker
    from tests.registry.apicurio import Apicurio

# On the mock these would show nothing more, and a registry takes longer to start than the mock's tests run in all.
pytestmark = pytest.mark.durable

FOLDER = example_folder()
FLIGHTS: list[dict[str, Any]] = [
    json.loads(line) for line in (FOLDER / "events.jsonl").read_text(encoding="utf-8").splitlines()
]
FIRST: dict[str, Any] = json.loads((FOLDER / "schemas" / "1-flight-departure.avsc").read_text(encoding="utf-8"))
WITH_GATE = FIRST | {"fields": [*FIRST["fields"], {"name": "gate", "type": "string", "default": "unknown"}]}
PROMOTED = FIRST | {
    "fields": [entry | ({"type": "long"} if entry["type"] == "int" else {}) for entry in WITH_GATE["fields"]]
}
"""Three versions of one subject: as in the example, with a field more, and with each int a long."""


@dataclass(frozen=True, slots=True)
class Stranger:
    """A program with nothing of ours: Confluent's client, its serializers, and their defaults."""

    kafka: str
    client: SchemaRegistryClient

    def write(self, topic: str, schema: dict[str, Any], prefix: str) -> None:
        """Write the example's flights, with ids that begin with `prefix`; registers the schema as `<topic>-value`."""
        serialize = AvroSerializer(self.client, json.dumps(schema))
        context = SerializationContext(topic, MessageField.VALUE)
        values = [serialize(flight | {"id": f"{prefix}/{flight['id']}"}, context) for flight in FLIGHTS]
        produce(self.kafka, topic, [(f["tail_number"].encode(), v) for f, v in zip(FLIGHTS, values, strict=True)])

    def read(self, topic: str) -> list[dict[str, Any]]:
        """Read all records of a topic; knows no schema but those the registry gives it."""
        deserialize = AvroDeserializer(self.client)
        context = SerializationContext(topic, MessageField.VALUE)
        rows: list[Any] = [deserialize(value_of(message), context) for message in read_all(self.kafka, topic)]
        return rows

    def answers(self, topic: str) -> dict[str, dict[str, float]]:
        """The late probability of each flight, by the prefix that it was written with; none may be there twice."""
        found: dict[str, dict[str, float]] = {}
        rows = self.read(topic)
        for row in rows:
            prefix, flight = row["event_id"].split("/")
            found.setdefault(prefix, {})[flight] = row["outputs"]["late_probability"]
        assert len(rows) == sum(map(len, found.values()))
        return found


@pytest.fixture
def stranger(kafka: Broker, registry: Apicurio) -> Stranger:
    return Stranger(kafka.bootstrap, SchemaRegistryClient({"url": registry.url}))


def test_strangers_events_are_answered_to_a_strangers_reader(
    kafka: Broker, registry: Apicurio, stranger: Stranger, tmp_path: Path
) -> None:
    service = _on_registry(tmp_path, kafka, registry.url)
    stranger.write(service.inputs[0], FIRST, "first")
    produce(kafka.bootstrap, service.inputs[0], [(b"bad", frame(123_456_789) + b"\x00")])
    _work_until_idle(service)
    answers = stranger.answers(service.output)["first"]
    assert answers.keys() == {flight["id"] for flight in FLIGHTS}
    assert all(0 < late < 1 for late in answers.values())
    assert answers["2013-09-02-UA1139-EWR-1624"] > 0.9  # it left three hours late
    assert [letter["reason"] for letter in stranger.read(service.letters)] == ["unknown_schema"]
    for topic, record in ((service.output, PREDICTION), (service.letters, DEAD_LETTER)):
        latest = stranger.client.get_latest_version(f"{topic}-value")
        assert {schema_id_of(value_of(message)) for message in read_all(kafka.bootstrap, topic)} == {latest.schema_id}
        assert latest.schema is not None
        assert json.loads(latest.schema.schema_str or "") == record.definition


def test_records_and_schemas_that_would_stop_a_worker_become_dead_letters(
    kafka: Broker, registry: Apicurio, stranger: Stranger, tmp_path: Path
) -> None:
    service = _on_registry(tmp_path, kafka, registry.url)
    events = service.inputs[0]
    stranger.write(events, FIRST, "first")
    deep = '{"type":"array","items":' * 300 + '"int"' + "}" * 300
    doubling: Any = "int"
    for level in range(20):
        fields = [{"name": "a", "type": doubling}, {"name": "b", "type": doubling if level == 0 else f"R{level - 1}"}]
        doubling = {"type": "record", "name": f"R{level}", "fields": fields}
    subject = f"{events}-hostile"
    bad = [
        stranger.client.register_schema(subject, RegistrySchema(text, "AVRO")) for text in (deep, json.dumps(doubling))
    ]
    unknown = [2**31, 2**32 - 1, *range(700_000_000, 700_000_500)]
    produce(kafka.bootstrap, events, [(b"bad", frame(schema_id) + b"\x00") for schema_id in (*bad, *unknown)])
    stranger.write(events, WITH_GATE, "with gate")
    _work_until_idle(service)
    answers = stranger.answers(service.output)
    assert len(answers["first"]) == len(FLIGHTS)
    assert answers["with gate"] == answers["first"]
    reasons = [letter["reason"] for letter in stranger.read(service.letters)]
    assert sorted(reasons) == ["schema_incompatible"] * len(bad) + ["unknown_schema"] * len(unknown)


def test_schema_evolves_under_the_workers(
    kafka: Broker, registry: Apicurio, stranger: Stranger, tmp_path: Path
) -> None:
    service = _on_registry(tmp_path, kafka, registry.url)
    events = service.inputs[0]
    stranger.write(events, FIRST, "first")
    with Worker(service.file) as worker:
        service.wait_written(len(FLIGHTS))
        stranger.write(events, WITH_GATE, "with gate")
        service.wait_written(2 * len(FLIGHTS))
        # This worker reads with the version that was the newest at its start, where these fields are ints: a long may not fit.
        stranger.write(events, PROMOTED, "promoted too early")
        service.wait_written(3 * len(FLIGHTS))
        service.wait_committed()
        assert worker.stop() == 0
    stranger.write(events, PROMOTED, "promoted")
    stranger.write(events, FIRST, "first again")
    _work_until_idle(service)
    answers = stranger.answers(service.output)
    assert len(answers["first"]) == len(FLIGHTS)
    assert answers == dict.fromkeys(("first", "with gate", "promoted", "first again"), answers["first"])
    letters = service.dead_letters()
    assert [letter.reason for letter in letters] == ["schema_incompatible"] * len(FLIGHTS)


def test_events_wait_for_a_registry_that_is_away(
    kafka: Broker, registry: Apicurio, stranger: Stranger, tmp_path: Path
) -> None:
    with Proxy(registry.port) as line:
        service = _on_registry(tmp_path, kafka, api_url(line.port))
        stranger.write(service.inputs[0], FIRST, "before")
        with Worker(service.file) as worker:
            service.wait_written(len(FLIGHTS))
            service.wait_committed()
            done = service.committed()
            line.cut()
            stranger.write(service.inputs[0], WITH_GATE, "during")  # by a schema that the worker has to ask for
            worker.wait_for(
                lambda: worker.metrics().get(f"{m.RETRIES.name}{{what=schemas}}", 0) >= 3, 30, "asking again and again"
            )
            assert (worker.get("/live")[0], worker.get("/ready")[0]) == (200, 503)
            assert service.committed() == done
            line.connect()
            service.wait_written(2 * len(FLIGHTS))
            service.wait_committed()
            assert worker.stop() == 0
    answers = stranger.answers(service.output)
    assert len(answers["before"]) == len(FLIGHTS)
    assert answers["during"] == answers["before"]
    assert service.dead_letters() == []


def test_start_says_what_the_registry_lacks(
    kafka: Broker, registry: Apicurio, stranger: Stranger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = _on_registry(tmp_path, kafka, registry.url)
    assert cli.run(["check", str(service.file)]) == 1
    assert f"no subject '{service.inputs[0]}-value': register the schema" in capsys.readouterr().err
    stranger.write(service.inputs[0], FIRST, "first")
    assert cli.run(["check", str(service.file)]) == 0


def _work_until_idle(service: Service) -> None:
    with Worker(service.file, "--until-idle") as worker:
        assert worker.wait() == 0


def _on_registry(folder: Path, kafka: Broker, url: str) -> Service:
    """The flights example on a registry; its input's schema is where serializers put it, `<topic>-value`."""
    service = flights_service(
        folder, kafka, schemas={"registry": {"url": url}}, model={"name": "flights-delay", "version": 2}
    )
    document = yaml.safe_load(service.file.read_text(encoding="utf-8"))
    document["input"]["schema"] = f"{service.inputs[0]}-value"
    service.file.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return service
