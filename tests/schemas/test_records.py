import json
import re
from pathlib import Path
from typing import Any

import fastavro
import pytest

from millstream.schemas.directory import DirectoryStore
from millstream.schemas.records import (
    COMPARISON,
    DEAD_LETTER,
    INCLUDING_PREDICTION,
    OWN_SCHEMAS_FOLDER,
    PREDICTION,
    ROLLOUT_DEAD_LETTER,
    ROLLOUT_EVALUATION,
    ROLLOUT_PREDICTION,
    OwnRecord,
)

RECORDS = [
    PREDICTION,
    DEAD_LETTER,
    COMPARISON,
    INCLUDING_PREDICTION,
    ROLLOUT_PREDICTION,
    ROLLOUT_DEAD_LETTER,
    ROLLOUT_EVALUATION,
]
OWN = pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name)


def _fields_without_doc(schema: Any) -> list[str]:
    if isinstance(schema, list):
        return [name for branch in schema for name in _fields_without_doc(branch)]
    if not isinstance(schema, dict):
        return []
    missing = [field["name"] for field in schema.get("fields", []) if not field.get("doc")]
    inner = [schema.get("type"), schema.get("items"), schema.get("values")]
    inner += [field["type"] for field in schema.get("fields", [])]
    return missing + [name for each in inner for name in _fields_without_doc(each)]


@OWN
def test_every_field_has_a_doc(record: OwnRecord) -> None:
    assert _fields_without_doc(record.definition) == []


@OWN
def test_schema_is_valid_avro_in_our_namespace(record: OwnRecord) -> None:
    parsed = fastavro.parse_schema(record.definition)
    assert isinstance(parsed, dict)
    assert parsed["name"].startswith("millstream.")


@OWN
def test_a_store_over_the_folder_gives_the_reserved_id(record: OwnRecord) -> None:
    schema = DirectoryStore(OWN_SCHEMAS_FOLDER).by_id(record.reserved_id)
    assert (schema.name, schema.definition) == (record.name, record.definition)


def test_every_schema_file_is_one_of_our_records() -> None:
    files = {path.name for path in OWN_SCHEMAS_FOLDER.glob("*.avsc")}
    named = {f"{record.reserved_id}-{record.name}.avsc" for record in RECORDS}
    assert named <= files
    assert all(re.fullmatch(r"1\d{6}-[a-z-]+-v\d+\.avsc", name) for name in files)
    assert all(json.loads(Path(OWN_SCHEMAS_FOLDER, name).read_text("utf-8"))["type"] == "record" for name in files)


def test_prediction_that_includes_fields_is_the_other_with_one_field_more() -> None:
    *others, event = INCLUDING_PREDICTION.definition["fields"]
    assert INCLUDING_PREDICTION.definition | {"fields": others} == PREDICTION.definition
    assert (event["name"], event["default"]) == ("event", {})


def test_records_of_pipelines_with_a_rollout_are_the_others_with_fields_more() -> None:
    *others, rollout = ROLLOUT_PREDICTION.definition["fields"]
    assert [other["type"] for other in others] == [one["type"] for one in INCLUDING_PREDICTION.definition["fields"]]
    assert (rollout["name"], rollout["default"]) == ("rollout", None)
    *others, model, version, variant, choice = ROLLOUT_DEAD_LETTER.definition["fields"]
    assert others == DEAD_LETTER.definition["fields"]
    assert [field["name"] for field in (model, version, variant, choice)] == ["model", "version", "variant", "rollout"]
    assert {field["default"] for field in (model, version, variant, choice)} == {None}
    assert choice["type"] == rollout["type"]


def test_outputs_have_the_same_type_in_predictions_and_comparisons() -> None:
    def type_of(fields: list[dict[str, Any]], name: str) -> Any:
        return next(field["type"] for field in fields if field["name"] == name)

    outputs = type_of(PREDICTION.definition["fields"], "outputs")
    primary = type_of(COMPARISON.definition["fields"], "primary")
    shadow = type_of(COMPARISON.definition["fields"], "shadow")
    assert type_of(primary["fields"], "outputs") == outputs
    assert type_of(shadow["fields"], "outputs") == ["null", outputs]
