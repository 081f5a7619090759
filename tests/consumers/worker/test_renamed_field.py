"""A producer renames a field, and events with both names lie in one topic. docs/models.md says what to do."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import fastavro
import pytest

from millstream.consumers.cli import main as cli
from millstream.consumers.observability.metrics import COMPARISONS
from millstream.schemas.wire import frame
from tests.broker.choice import Broker
from tests.broker.clients import produce
from tests.consumers.processes import Worker
from tests.consumers.python_service import CONFIG, python_service
from tests.consumers.service import value_of
from tests.consumers.worker.test_worker_shadow import comparisons, shadowed
from tests.native import with_native

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


FALLBACK = "fields: [{field: amount, fallback: x}]"
EVENTS = [
    {"id": "before", "x": 1.5},
    {"id": "after", "amount": 2.5},
    {"id": "both", "x": 9, "amount": 3.5},
    {"id": "no"},
]


def offline(folder: Path, mapping: str, schema: dict[str, Any] | None, form: str = "json", **sections: Any) -> Service:
    """A pipeline whose model reads the field by this mapping, and the file of `EVENTS`. `schema`: of the events."""
    named = {} if schema is None else {"schema": "number-event"}
    options: dict[str, Any] = {"input": {"format": form, "event_id": "id", **named}, **sections}
    service = python_service(folder, NOWHERE, DOUBLES, with_topics=False, **options)
    (folder / "schemas" / "2-number-event.avsc").write_text(json.dumps(schema or OLD), encoding="utf-8")
    config = folder / "models" / "number" / "1" / "config.yaml"
    config.write_text(CONFIG.replace("fields: [x]", mapping), encoding="utf-8")
    (folder / "events.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in EVENTS), encoding="utf-8")
    return service


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(("form", "schema"), [("json", None), ("json", EITHER), ("avro", EITHER)])
@pytest.mark.parametrize("overridden", [True, False])
def test_fallback_reads_both_names(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    form: str,
    schema: dict[str, Any] | None,
    *,
    native: bool,
    overridden: bool,
) -> None:
    model = {"name": "number"} | ({"inputs": {"x": [{"field": "amount", "fallback": "x"}]}} if overridden else {})
    service = offline(tmp_path, "fields: [id]" if overridden else FALLBACK, schema, form, model=model)
    assert cli.run(["check", str(service.file), "--offline"]) == 0
    assert "input     x: float64 [1] per event, from amount or x" in capsys.readouterr().out
    with with_native(on=native):
        assert cli.run(["predict", str(service.file), str(tmp_path / "events.jsonl"), "--json"]) == 1
    *found, rejected = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["event_id"], one["outputs"]["y"]) for one in found] == [("before", 3.0), ("after", 5.0), ("both", 7.0)]
    assert found[0]["features"] == {"x": {"amount or x": 1.5}}
    assert rejected["error"] == (
        "field `amount` is absent or null, and so is its fallback field `x`, but tensor `x` needs a value"
    )


def test_fallback_is_read_before_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    service = offline(tmp_path, FALLBACK.replace("}", ", missing: -1}"), None)
    assert cli.run(["predict", str(service.file), str(tmp_path / "events.jsonl"), "--json"]) == 0
    found = [json.loads(line)["outputs"]["y"] for line in capsys.readouterr().out.splitlines()]
    assert found == [3.0, 5.0, 7.0, -2.0]


def test_several_models_read_a_fallback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    route = {
        "rules": [{"when": "id == before", "model": "number"}],
        "default": {"name": "number", "inputs": {"x": ["amount"]}},
    }
    service = offline(tmp_path, FALLBACK, None, models={"route": route})
    service.file.write_text(service.file.read_text().replace("model:\n  name: number\n", ""), encoding="utf-8")
    assert cli.run(["predict", str(service.file), str(tmp_path / "events.jsonl"), "--json"]) == 1
    found = [json.loads(line).get("outputs") for line in capsys.readouterr().out.splitlines()]
    assert found == [{"y": 3.0}, {"y": 5.0}, {"y": 7.0}, None]


def test_predict_says_which_of_the_two_names_no_event_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    service = offline(tmp_path, FALLBACK.replace("fallback: x", "fallback: old.price, missing: 0"), None)
    file = tmp_path / "events.jsonl"
    for event, warned in (
        ({"amount": 1}, ["field old.price was missing or null in 3 of 3 events; it is the fallback of amount."]),
        ({"old": {"price": 1}}, ["field amount was missing or null in 3 of 3 events; its fallback is old.price."]),
        (
            {"id": "a"},
            [
                "field amount was missing or null in 3 of 3 events; its fallback is old.price.",
                "field old.price was missing or null in 3 of 3 events; it is the fallback of amount.",
                "amount (with the fallback old.price) was absent or null in 3 of 3 events; the model gets 0 instead, as ",
            ],
        ),
    ):
        file.write_text(f"{json.dumps({'id': 'a', **event})}\n" * 3, encoding="utf-8")
        assert cli.run(["predict", str(service.file), str(file)]) == 0
        said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]
        assert len(said) == len(warned)
        for line, expected in zip(said, warned, strict=True):
            assert line.startswith(f"warning: {expected}")


def test_event_that_lacks_both_names_is_advised_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    service = offline(tmp_path, FALLBACK, None)
    file = tmp_path / "events.jsonl"
    file.write_text('{"id": "a", "amounts": 1}\n', encoding="utf-8")
    assert cli.run(["predict", str(service.file), str(file)]) == 1
    assert (
        "unfit: amount: the event has no `amount`. It has the fields id, amounts. Did you mean `amounts`?"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("mapping", "says"),
    [
        (
            "fields: [{field: amount, fallback: prise}]",
            "tensor `x` takes the event's field `prise`, but schema `number-event` has no such field: ",
        ),
        (
            "fields: [{field: amount, fallback: id}]",
            "takes float64 from the event's field `id`, but schema `number-event` has string",
        ),
        (
            "fields: [{field: made, fallback: sold, as: hour}]",
            "field `made` and its fallback `sold` as times of one unit, but schema `number-event` has timestamp-millis and "
            "timestamp-micros there.",
        ),
        (
            "fields: [{field: made, fallback: number, as: hour}]",
            "field `made` and its fallback `number` as times of one unit, but schema `number-event` has timestamp-millis and "
            "no Avro time there.",
        ),
        (
            "fields: [{field: made, fallback: day, as: hour}]",
            "tensor `x` takes the event's field `day`, but schema `number-event` has no such field: ",
        ),
    ],
)
def test_check_refuses_a_fallback_that_does_not_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mapping: str, says: str
) -> None:
    times = [
        {"name": name, "type": ["null", {"type": "long", "logicalType": f"timestamp-{unit}"}], "default": None}
        for name, unit in (("made", "millis"), ("sold", "micros"))
    ]
    number = {"name": "number", "type": ["null", "long"], "default": None}
    schema = {**EITHER, "fields": [ID, *EITHER_FIELD, *times, number]}
    service = offline(tmp_path, mapping, schema, "avro")
    assert cli.run(["check", str(service.file), "--offline"]) == 1
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1


def test_check_names_a_default_in_place_of_the_fallback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema = {**EITHER, "fields": [ID, {"name": "amount", "type": "double", "default": 7.0}, EITHER_FIELD[0]]}
    service = offline(tmp_path, FALLBACK, schema, "avro")
    assert cli.run(["check", str(service.file), "--offline"]) == 0
    assert "events without `amount` get 7.0, the schema's default" in capsys.readouterr().out


@pytest.mark.parametrize("native", ["on", pytest.param("off", marks=pytest.mark.full)])
def test_shadow_reads_a_fallback_that_the_primary_does_not_need(kafka: Broker, tmp_path: Path, native: str) -> None:
    """Avro: each producer's schema has one of the two fields, and the workers' has both."""
    options = {"format": "avro", "schema": "number-event", "event_id": "id"}
    service = shadowed(tmp_path, kafka, "return {'y': inputs['x']}", input=options)
    models = tmp_path / "models" / "number"
    for version, mapping in (
        (1, FALLBACK.replace("}", ", missing: 0}")),
        (2, "fields: [{field: x, fallback: amount}]"),
    ):
        (models / f"{version}" / "config.yaml").write_text(CONFIG.replace("fields: [x]", mapping), encoding="utf-8")
    for number, schema in ((2, {**NEW, "fields": [ID, EITHER_FIELD[1]]}), (3, EITHER)):
        (tmp_path / "schemas" / f"{number}-number-event.avsc").write_text(json.dumps(schema), encoding="utf-8")
    rows: list[tuple[int, dict[str, Any], dict[str, Any]]] = [
        (1, OLD, {"id": "before", "x": 1.5}),
        (2, {**NEW, "fields": [ID, EITHER_FIELD[1]]}, {"id": "after", "amount": 2.5}),
        (3, EITHER, {"id": "both", "x": 9.0, "amount": 3.5}),
        (3, EITHER, {"id": "no", "x": None, "amount": None}),
    ]
    with Worker(service.file, env={"MILLSTREAM_NATIVE": native}) as worker:
        worker.wait_ready()
        for number, schema, event in rows:
            body = io.BytesIO()
            fastavro.schemaless_writer(body, fastavro.parse_schema(schema), event)
            produce(kafka.bootstrap, service.inputs[0], [(b"k", frame(number) + body.getvalue())])
        worker.wait_for(lambda: worker.metrics().get(COMPARISONS.name, 0) >= 4, 60, "done comparing")
        assert worker.stop() == 0
    assert answers(service) == {"before": -1.5, "after": -2.5, "both": -3.5, "no": -0.0}
    found = comparisons(service)
    of_shadow = {event: (answer or {}).get("y") for event, answer in zip(found.ids, found.shadow, strict=True)}
    assert of_shadow == {"before": 1.5, "after": 2.5, "both": 9.0, "no": None}


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
