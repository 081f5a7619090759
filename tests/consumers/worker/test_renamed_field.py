"""A producer renames a field, and events with both names lie in one topic. docs/models.md says what to do."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import fastavro
import pytest

from millstream.consumers.cli import main as cli
from millstream.schemas.wire import frame
from tests.broker.choice import Broker
from tests.broker.clients import produce
from tests.consumers.processes import Worker
from tests.consumers.python_service import CONFIG, python_service
from tests.consumers.service import value_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.consumers.service import Service

NOWHERE = Broker("127.0.0.1:1", durable=False, kind="mock")
ID = {"name": "id", "type": "string"}
OLD = {"type": "record", "name": "NumberEvent", "fields": [ID, {"name": "x", "type": "double"}]}
NEW = {"type": "record", "name": "NumberEvent", "fields": [ID, {"name": "amount", "type": "double", "aliases": ["x"]}]}
EITHER_FIELD: list[dict[str, Any]] = [
    {"name": name, "type": ["null", "double"], "default": None} for name in ("x", "amount")
]
EITHER = {"type": "record", "name": "NumberEvent", "fields": [ID, *EITHER_FIELD]}
DOUBLES = "return {'y': inputs['x'][:, 0] * 2}"


def renamed_in_mapping(service: Service) -> None:
    config = service.file.parent / "models" / "number" / "1" / "config.yaml"
    config.write_text(CONFIG.replace("fields: [x]", "fields: [amount]"), encoding="utf-8")


def answers(service: Service) -> dict[str, float]:
    rows = [json.loads(value_of(message)) for message in service.predictions()]
    return {row["event_id"]: row["outputs"]["y"] for row in rows}


def work(service: Service, **env: str) -> None:
    with Worker(service.file, "--until-idle", env=env) as worker:
        assert worker.wait() == 0


@pytest.mark.parametrize("native", ["on", pytest.param("off", marks=pytest.mark.full)])
def test_alias_in_the_newest_avro_schema_reads_both_names(kafka: Broker, tmp_path: Path, native: str) -> None:
    service = python_service(
        tmp_path, kafka, DOUBLES, input={"format": "avro", "schema": "number-event", "event_id": "id"}
    )
    renamed_in_mapping(service)
    (tmp_path / "schemas" / "2-number-event.avsc").write_text(json.dumps(NEW), encoding="utf-8")
    rows: list[tuple[int, dict[str, Any], dict[str, Any]]] = [
        (1, OLD, {"id": "before", "x": 1.5}),
        (2, NEW, {"id": "after", "amount": 2.5}),
    ]
    for number, schema, event in rows:
        body = io.BytesIO()
        fastavro.schemaless_writer(body, fastavro.parse_schema(schema), event)
        produce(kafka.bootstrap, service.inputs[0], [(b"k", frame(number) + body.getvalue())])
    work(service, MILLSTREAM_NATIVE=native)
    assert answers(service) == {"before": 3.0, "after": 5.0}


@pytest.mark.parametrize(
    ("condition", "schema"),
    [
        ("amount >= -1e308", None),
        ("version == 2", None),
        ('unit != ""', None),
        ("amount >= -1e308", EITHER),
    ],
)
def test_route_gives_each_event_of_json_its_own_mapping(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], condition: str, schema: dict[str, Any] | None
) -> None:
    route = {"rules": [{"when": condition, "model": "number"}], "default": {"name": "number", "inputs": {"x": ["x"]}}}
    service = python_service(
        tmp_path,
        NOWHERE,
        DOUBLES,
        with_topics=False,
        input={"format": "json", "event_id": "id", **({} if schema is None else {"schema": "number-event"})},
        models={"route": route},
    )
    (tmp_path / "schemas" / "2-number-event.avsc").write_text(json.dumps(schema or OLD), encoding="utf-8")
    service.file.write_text(service.file.read_text().replace("model:\n  name: number\n", ""), encoding="utf-8")
    renamed_in_mapping(service)
    events = [{"id": "before", "x": 1.5}, {"id": "after", "amount": 2.5, "version": 2, "unit": "EUR"}]
    file = tmp_path / "events.jsonl"
    file.write_text("".join(f"{json.dumps(event)}\n" for event in events), encoding="utf-8")
    assert cli.run(["check", str(service.file), "--offline"]) == 0
    capsys.readouterr()
    assert cli.run(["predict", str(service.file), str(file), "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["event_id"], one["outputs"]["y"]) for one in found] == [("before", 3.0), ("after", 5.0)]
    if schema is None and "amount" not in condition:  # else the other mapping has a value, or the rule shows it
        shown = [list(one["features"].values()) for one in found]
        assert {"amount": 2.5} in shown[1]
        assert {"x": 1.5} in shown[0]
        assert all({"amount", "x"} - {*fields} for fields in ({name for one in each for name in one} for each in shown))
    file.write_text(f"{json.dumps(events[0])}\n" * 2, encoding="utf-8")
    assert cli.run(["predict", str(service.file), str(file)]) == 0
    said = capsys.readouterr().err
    assert "2 events predicted" in said
    assert "the model gets" not in said  # the rule alone reads the field


@pytest.mark.full
@pytest.mark.durable
def test_dead_letters_of_the_new_name_are_predicted_after_the_mapping_has_it(kafka: Broker, tmp_path: Path) -> None:
    service = python_service(tmp_path, kafka, DOUBLES, input={"format": "json", "event_id": "id"})
    for event in ({"id": "before", "x": 1.5}, {"id": "after", "amount": 2.5}):
        produce(kafka.bootstrap, service.inputs[0], [(b"k", json.dumps(event).encode())])
    work(service)
    assert answers(service) == {"before": 3.0}
    renamed_in_mapping(service)
    assert cli.run(["predict", str(service.file), "--dead-letters", "--field", "x"]) == 0
    assert cli.run(["dead-letters", "replay", str(service.file), "--field", "x", "--yes"]) == 0
    work(service)
    assert answers(service) == {"before": 3.0, "after": 5.0}
