"""Events whose included field has another type than the pipeline says: docs/wire-format.md states the reason."""

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pytest
import yaml

from millstream.consumers.resilience.limited_retry import LimitedRetry
from millstream.consumers.worker.offline import answers
from millstream.consumers.worker.plan import make_plan
from millstream.pipeline.loading import load_pipeline

WRITTEN_AS_TEXT, READ = 1, 2  # IDs; the events are read with the highest one
MODEL = """
class Model:
    def __init__(self, folder, device): pass
    def predict(self, inputs): return {"y": inputs["x"]}
"""
CONFIG = """
inputs: [{tensor: x, fields: [x], dtype: float32, shape: []}]
outputs: [{name: y, tensor: y}]
"""


def schema(included: Any) -> dict[str, Any]:
    fields = [{"name": "x", "type": "double"}, {"name": "amount", "type": included}]
    return {"type": "record", "name": "Event", "fields": fields}


def reasons(
    folder: Path, values: list[bytes], source: dict[str, Any], include: Any, config: str = CONFIG, **sections: Any
) -> list[str | None]:
    """For each event, why it becomes a dead letter; None if it gets a prediction."""
    (folder / "schemas").mkdir()
    (folder / "schemas" / f"{WRITTEN_AS_TEXT}-event.avsc").write_text(json.dumps(schema("string")))
    (folder / "schemas" / f"{READ}-event.avsc").write_text(json.dumps(schema("long")))
    version = folder / "models" / "m" / "1"
    version.mkdir(parents=True)
    (version / "config.yaml").write_text(config)
    (version / "model.py").write_text(MODEL)
    document: dict[str, Any] = {
        "name": "p",
        "kafka": {"bootstrap": "127.0.0.1:1"},
        "input": {"topic": "in", **source},
        "model": {"repository": "models", "name": "m"},
        "output": {"topic": "out", "format": "json", "include": include},
        "dead_letters": {"topic": "letters"},
        **sections,
    }
    if "schema" in source:
        document["schemas"] = {"directory": "schemas"}
    file = folder / "pipeline.yaml"
    file.write_text(yaml.safe_dump(document))
    told = answers(make_plan(load_pipeline(file, {})), values, LimitedRetry(1, pytest.fail))
    return [None if one.rejection is None else one.rejection.reason for one in told]


def in_avro(amount: Any, schema_id: int) -> bytes:
    out = io.BytesIO()
    written = schema("string" if schema_id == WRITTEN_AS_TEXT else "long")
    fastavro.schemaless_writer(out, fastavro.parse_schema(written), {"x": 1.0, "amount": amount})
    return b"\0" + schema_id.to_bytes(4) + out.getvalue()


@pytest.mark.parametrize(
    ("source", "include"),
    [({"format": "json"}, {"amount": "int"}), ({"format": "json", "schema": "event"}, ["amount"])],
    ids=["without a schema", "with a schema"],
)
def test_another_type_in_json_is_undecodable(tmp_path: Path, source: dict[str, Any], include: Any) -> None:
    values = [json.dumps({"x": 1.0, "amount": amount}).encode() for amount in (5, "five", 5.5, [5])]
    assert reasons(tmp_path, values, source, include) == [None, *["undecodable"] * 3]


def test_list_is_included_by_the_type_of_its_items(tmp_path: Path) -> None:
    value = json.dumps({"x": 1.0, "amount": [5, 6]}).encode()
    assert reasons(tmp_path, [value], {"format": "json"}, {"amount[]": "int"}) == [None]


@pytest.mark.parametrize(
    ("included", "rejected"),
    [("text", [None, "undecodable", "undecodable"]), ("any", [None] * 3), (None, [None, None, "undecodable"])],
)
def test_vocabulary_of_one_item_follows_the_included_type_of_all_items(
    tmp_path: Path, included: str | None, rejected: list[str | None]
) -> None:
    kind = "{field: 'items[0].kind', vocabulary: [toy], unknown: 1}"
    config = CONFIG.replace("fields: [x]", f"fields: [{kind}]")
    values = [json.dumps({"items": [{"kind": kind}, {"kind": kind}]}).encode() for kind in ("toy", 7, True)]
    include = {"items[].kind": included}
    assert reasons(tmp_path, values, {"format": "json"}, include, config) == rejected


def test_another_type_in_avro_is_schema_incompatible(tmp_path: Path) -> None:
    values = [in_avro(5, READ), in_avro("five", WRITTEN_AS_TEXT)]
    found = reasons(tmp_path, values, {"format": "avro", "schema": "event"}, ["amount"])
    assert found == [None, "schema_incompatible"]


@pytest.mark.parametrize(
    "sections",
    [
        {"rollout": {"strategy": "manual", "override_fields": ["amount"]}},
        {"batch": {"cost": "amount", "max_cost": 1000}},
    ],
    ids=["override", "cost"],
)
def test_included_type_holds_for_uses_that_take_any_type(tmp_path: Path, sections: dict[str, Any]) -> None:
    values = [json.dumps({"x": 1.0, "amount": amount}).encode() for amount in ("five", 5)]
    assert reasons(tmp_path, values, {"format": "json"}, {"amount": "text"}, **sections) == [None, "undecodable"]
