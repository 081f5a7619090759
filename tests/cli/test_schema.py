"""`millstream schema`: predictions are of the schema that it prints."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import fastavro
import numpy as np
import pytest
from jsonschema import Draft202012Validator

from millstream.consumers.cli import main as cli
from millstream.inference.executors.python import PythonExecutor
from millstream.inference.repository import load_version
from millstream.schemas.column import column_of
from millstream.schemas.predictions import JsonPredictionEncoder
from millstream.schemas.records import INCLUDING_PREDICTION, PREDICTION, ROLLOUT_PREDICTION
from millstream.schemas.row_models import RowModels
from millstream.schemas.table import Table
from tests.broker.choice import Broker
from tests.consumers.python_service import python_service
from tests.consumers.service import vector_service

if TYPE_CHECKING:
    from pathlib import Path

    from tests.consumers.service import Service

NOWHERE = Broker("127.0.0.1:1", durable=False, kind="mock")
BODY = 'return {"y": inputs["x"], "p": np.zeros((len(inputs["x"]), 3), np.float32), "late": inputs["x"][:, 0] > 0}'


def shown(service: Service, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    assert cli.run(["schema", str(service.file), *options]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def service_of(folder: Path, body: str = BODY, **output: Any) -> Service:
    service = python_service(folder, NOWHERE, body, with_topics=False, output={"format": "json", **output})
    config = folder / "models" / "number" / "1" / "config.yaml"
    config.write_text(config.read_text().replace("{tensor: y}", "{tensor: y}, {tensor: p}, {tensor: late}"))
    return service


def predictions(outputs: dict[str, Any], event: Table | None) -> list[Any]:
    rows = np.arange(len(next(iter(outputs.values()))))
    encoder = JsonPredictionEncoder(pipeline="p", variant="primary")
    values = encoder.encode(list(map(str, rows)), rows, rows, rows, outputs, event, models=RowModels([("m", 1)]))
    return [json.loads(value) for value in values]


def test_json_schema_has_this_pipelines_outputs_and_included_fields(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = shown(service_of(tmp_path, include=["id", "x"]), capsys)
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    outputs: dict[str, Any] = {"y": np.ones((2, 1)), "p": np.zeros((2, 3), np.float32), "late": np.array([True, False])}
    event = Table({"id": column_of(["a", None], "string"), "x": column_of([float("nan"), 1.5], "float64")})
    for prediction in predictions(outputs, event):
        validator.validate(prediction)
    texts = outputs | {"y": np.array(["a", "b"])}
    for wrong in (*predictions(texts, event), *predictions(outputs, None), *predictions({"y": np.ones(2)}, event)):
        assert not validator.is_valid(wrong)
    assert set(schema["properties"]["outputs"]["required"]) == {"y", "p", "late"}
    assert list(schema["properties"]) == [field["name"] for field in INCLUDING_PREDICTION.definition["fields"]]


def test_json_schema_without_included_fields_has_no_event(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema = shown(service_of(tmp_path), capsys)
    assert list(schema["properties"]) == [field["name"] for field in PREDICTION.definition["fields"]]


def test_outputs_of_a_model_that_rejects_blank_events_may_have_any_type(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = shown(service_of(tmp_path, 'raise ValueError("blank")'), capsys)
    assert schema["properties"]["outputs"]["properties"] == {"y": {}, "p": {}, "late": {}}


@pytest.mark.parametrize("scored", [True, False])
def test_predictions_of_a_model_that_rejects_blank_events_are_of_the_schema(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], scored: bool
) -> None:
    body = f"""
        if not inputs["x"].all():
            raise ValueError("blank")
        p = np.tile([0.25, 0.75], (len(inputs["x"]), 1))
        return {{"y": p if {scored} else p.argmax(axis=1), "p": p}}
    """
    service = python_service(tmp_path, NOWHERE, body, with_topics=False, output={"format": "json"})
    config = tmp_path / "models" / "number" / "1" / "config.yaml"
    outputs = (
        "{tensor: y, classes: [cat, dog]}, {tensor: p, name: best, top: 1, classes: [cat, dog]}, "
        "{tensor: p, name: sure, threshold: 0.5}"
    )
    config.write_text(config.read_text().replace("{tensor: y}", outputs))
    assert cli.run(["schema", str(service.file)]) == 0
    said = capsys.readouterr()
    executor = PythonExecutor(load_version(tmp_path / "models", "number"))
    real = executor.run({"x": np.ones((2, 1))})
    validator = Draft202012Validator(json.loads(said.out))
    for prediction in predictions(real, None):
        validator.validate(prediction)
    for name in ("best", "best_scores", "sure"):
        for lacking in predictions({other: values for other, values in real.items() if other != name}, None):
            assert not validator.is_valid(lacking)
    assert "found a refusal: " in said.err
    assert "model.py:9: ValueError: blank. So the schema allows any type." in said.err
    assert "either `y` or a score for each class" in said.err


def test_avro_schema_is_the_one_of_the_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    service = vector_service(tmp_path, NOWHERE, with_topics=False)
    assert shown(service, capsys) == shown(service, capsys, "--avro") == PREDICTION.definition
    service.file.write_text(service.file.read_text().replace("output:\n", "output:\n  include: [id, x]\n"))
    found = shown(service, capsys)
    assert found == INCLUDING_PREDICTION.definition
    fastavro.parse_schema(found)
    event = shown(service, capsys, "--json-schema")["properties"]["event"]["properties"]
    assert event["id"] == {"type": ["string", "null"]}
    assert event["x"]["type"] == ["array", "null"]


def test_pipeline_with_a_rollout_has_its_choice_in_both_schemas(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rollout = {"rollout": {"strategy": "manual"}, "model": {"name": "vector", "version": 1}}
    service = vector_service(tmp_path, NOWHERE, with_topics=False, **rollout)
    assert shown(service, capsys) == ROLLOUT_PREDICTION.definition
    found = shown(service, capsys, "--json-schema")
    Draft202012Validator.check_schema(found)
    assert found["properties"]["rollout"]["anyOf"][1] == {"type": "null"}
    assert "rollout" not in found["required"]
    assert "event" not in found["properties"]
