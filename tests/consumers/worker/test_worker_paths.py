"""Nested events through a worker: the fields that the pipeline and the model name by their paths."""

from __future__ import annotations

import json
from importlib.util import find_spec
from shutil import rmtree
from typing import TYPE_CHECKING, Any

import pytest

from millstream.consumers.errors import PlanError
from millstream.consumers.events import Rejection
from millstream.consumers.worker.plan import make_plan
from millstream.pipeline.loading import load_pipeline
from tests.broker.choice import Broker
from tests.broker.clients import produce
from tests.consumers.in_memory import polled
from tests.consumers.processes import Worker
from tests.consumers.python_service import python_service
from tests.consumers.service import value_of
from tests.native import with_native

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from millstream.consumers.events import DecodedBatch
    from tests.consumers.service import Service

NOWHERE = Broker("127.0.0.1:1", durable=False, kind="mock")
CONFIG = """\
inputs:
  - {tensor: x, fields: ["order.items[0].price", "order.customer.age"], dtype: float64, shape: [2]}
outputs: [{tensor: y}]
"""
INPUT = {"format": "json", "event_id": "order.id", "event_time": "at"}


def orders(folder: Path, kafka: Broker, *, config: str = CONFIG, with_topics: bool = True, **options: Any) -> Service:
    service = python_service(
        folder, kafka, 'return {"y": inputs["x"].sum(axis=1)}', with_topics=with_topics, input=INPUT | options
    )
    (folder / "models" / "number" / "1" / "config.yaml").write_text(config, encoding="utf-8")
    rmtree(folder / "schemas")
    return service


def order(number: int, **fields: Any) -> bytes:
    items = [{"price": number + 0.5, "name": "x"}, {"price": 0}]
    return json.dumps(
        {"order": {"id": number, "items": items, "customer": {"age": number}}, "at": 5, **fields}
    ).encode()


def decoded(service: Service, values: Sequence[bytes]) -> DecodedBatch:
    return make_plan(load_pipeline(service.file, {})).decoder.decode(polled(list(values)))


def test_orders_are_predicted(kafka: Broker, tmp_path: Path) -> None:
    service = orders(tmp_path, kafka)
    with Worker(service.file) as worker:
        worker.wait_ready()
        values = [*(order(number) for number in range(20)), b'{"order": {"id": "none"}}', b'{"order": []}']
        produce(kafka.bootstrap, service.inputs[0], [(None, value) for value in values], partition=0)
        service.wait_written(len(values))
        assert worker.stop() == 0
    rows = [json.loads(value_of(message)) for message in service.predictions()]
    assert {row["event_id"]: row["outputs"]["y"] for row in rows} == {
        str(number): 2 * number + 0.5 for number in range(20)
    }
    assert {letter.reason: letter.error for letter in service.dead_letters()} == {
        "unfit": "field `order.items[0].price` is absent or null, but tensor `x` needs a value",
        "undecodable": "order: expected an object, found an array",
    }


SCHEMA = {
    "properties": {
        "order": {"properties": {"customer": {"properties": {"age": {"maximum": 9}}, "additionalProperties": False}}}
    }
}


@pytest.mark.skipif(find_spec("jsonschema_rs") is None, reason="needs the extra `json-schema`")
def test_orders_that_do_not_fit_the_json_schema_are_dead_letters_and_the_others_are_predicted(
    kafka: Broker, tmp_path: Path
) -> None:
    (tmp_path / "order.json").write_text(json.dumps(SCHEMA))
    service = orders(tmp_path, kafka, json_schema="order.json")
    with Worker(service.file) as worker:
        worker.wait_ready()
        values = [order(number) for number in range(11)]
        produce(kafka.bootstrap, service.inputs[0], [(None, value) for value in values], partition=0)
        service.wait_written(len(values))
        assert worker.stop() == 0
    rows = [json.loads(value_of(message)) for message in service.predictions()]
    assert {row["event_id"] for row in rows} == {str(number) for number in range(10)}
    [letter] = service.dead_letters()
    assert (letter.reason, letter.error) == (
        "undecodable",
        "order.customer.age: expected `maximum` 9, found the number 10 (JSON Schema order.json)",
    )


@pytest.mark.skipif(find_spec("jsonschema_rs") is None, reason="needs the extra `json-schema`")
def test_path_that_the_json_schema_excludes_is_told(tmp_path: Path) -> None:
    (tmp_path / "order.json").write_text(json.dumps(SCHEMA).replace("age", "name"))
    service = orders(tmp_path, NOWHERE, json_schema="order.json", with_topics=False)
    with pytest.raises(PlanError, match=r"json_schema: .* the field `order.customer.age`, .* not among its properties"):
        make_plan(load_pipeline(service.file, {}))


@pytest.mark.parametrize(
    ("form", "at", "expected"),
    [
        (None, 1_714_564_800_001, 1_714_564_800_001),
        (None, 1_714_564_800_001.25, 1_714_564_800_001),
        ("iso8601", "2024-05-01T14:00:00.001+02:00", 1_714_564_800_001),
        ("seconds", 1_714_564_800.001, 1_714_564_800_001),
        ("microseconds", 1_714_564_800_001_999, 1_714_564_800_001),
    ],
)
def test_event_times_have_the_stated_form(tmp_path: Path, form: str | None, at: object, expected: int) -> None:
    service = orders(tmp_path, NOWHERE, with_topics=False, **({"event_time_format": form} if form else {}))
    block = decoded(service, [order(1, at=at), order(2, at=None)])
    assert block.event_times.tolist() == [expected, 1_700_000_000_000]
    assert list(block.ids or ()) == ["1", "2"]


def test_time_that_cannot_be_parsed_is_unfit(tmp_path: Path) -> None:
    service = orders(tmp_path, NOWHERE, with_topics=False, event_time_format="iso8601")
    block = decoded(service, [order(1, at="2024-05-01"), order(2, at="yesterday"), order(3, at="2024-05-02")])
    assert block.good.tolist() == [0, 2]
    expected = "a valid time in ISO 8601 with separators (years 1 to 9999), such as 2026-03-01T10:00:00Z"
    assert block.rejected == {
        1: Rejection("unfit", f"field `at`, the event time: expected {expected}, found 'yesterday'")
    }


@pytest.mark.parametrize("native", [True, False], ids=["many at a time", "one by one"])
def test_iso_8601_where_numbers_are_expected_names_the_option(tmp_path: Path, native: bool) -> None:
    service = orders(tmp_path, NOWHERE, with_topics=False)
    with with_native(on=native):
        block = decoded(service, [order(1, at="2024-05-01T14:00:00Z"), order(2, at=[1]), order(3, at=1)])
    assert block.good.tolist() == [2]
    assert {row: why.error for row, why in block.rejected.items()} == {
        0: "at: expected a number that fits into a double, found text '2024-05-01T14:00:00Z' (a time in ISO 8601 needs "
        "`event_time_format: iso8601` under `input` in the pipeline file)",
        1: "at: expected a number that fits into a double, found an array",
    }


def test_mistake_in_a_models_path_is_reported_with_its_tensor(tmp_path: Path) -> None:
    service = orders(tmp_path, NOWHERE, config=CONFIG.replace("items[0]", "items[zero]"), with_topics=False)
    with pytest.raises(PlanError, match=r"tensor `x` takes the event's field .* expected an index such as 0 or -1"):
        make_plan(load_pipeline(service.file, {}))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            '[{field: "items[0].kg", type: any}, {field: "items[1].kg", type: text}]',
            "found `type: any` and `type: text`. Write `type: any` beside `items[1].kg`.",
        ),
        ("[items, items.kg]", "found a single value and an object. Correct one of the paths."),
    ],
)
def test_paths_that_contradict_each_other_are_reported_with_the_file_and_the_line(
    tmp_path: Path, fields: str, said: str
) -> None:
    config = f"inputs:\n  - {{tensor: x, fields: {fields}, dtype: float64}}\noutputs: [{{tensor: y}}]\n"
    service = orders(tmp_path, NOWHERE, config=config, with_topics=False)
    with pytest.raises(PlanError) as refused:
        make_plan(load_pipeline(service.file, {}))
    assert "config.yaml:2): tensor `x`: paths `items" in str(refused.value)
    assert said in str(refused.value)
