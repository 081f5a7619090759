"""docs/wire-format.md is right: its bytes are what the encoders write, its programs read and write them."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastavro import schema

from millstream.schemas.dead_letters import DeadLetter
from millstream.schemas.predictions import JsonPredictionEncoder, PredictionEncoder
from millstream.schemas.records import (
    COMPARISON,
    DEAD_LETTER,
    EVALUATION,
    INCLUDING_PREDICTION,
    OWN_SCHEMAS_FOLDER,
    PREDICTION,
    ROLLOUT,
    ROLLOUT_DEAD_LETTER,
    ROLLOUT_EVALUATION,
    ROLLOUT_PREDICTION,
)
from millstream.schemas.row_models import RowModels
from millstream.schemas.rows import decode_row
from millstream.schemas.store import AvroType
from millstream.schemas.wire import frame
from tests.schemas.letters import encoded

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "wire-format.md").read_text("utf-8")
FLIGHT_SCHEMA = ROOT / "examples" / "flights" / "schemas" / "1-flight-departure.avsc"
ORIGIN: dict[str, Any] = {"pipeline": "delay", "model": "flights", "version": 2, "variant": "primary"}
NAMES: dict[str, Any] = {"pipeline": "delay", "variant": "primary"}
BATCH: dict[str, Any] = {
    "event_ids": ["e1"],
    "event_times": np.array([1_378_012_500_000]),
    "ingest_times": np.array([1_378_012_500_010]),
    "prediction_times": np.array([1_378_012_500_015]),
    "outputs": {"p": np.array([0.5], np.float32)},
    "models": RowModels([("flights", 2)]),
}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def program(number: int) -> dict[str, Any]:
    """The names that a program of the page defines; its main part, which needs a broker, doesn't run."""
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(blocks("python")[number], "docs/wire-format.md", "exec"), names)
    return names


def load(path: Path) -> AvroType:
    return schema.load_schema(str(path))


def test_bytes_of_the_example_are_what_the_encoder_writes() -> None:
    [value] = PredictionEncoder(PREDICTION.reserved_id, **NAMES).encode(**BATCH)
    [block] = blocks("hex")
    cells = [line.split("  ")[0] for line in block.splitlines()]
    assert bytes.fromhex("".join(cells)) == value
    assert f"has {len(value)} bytes" in PAGE


def test_json_of_the_example_is_what_the_encoder_writes() -> None:
    [value] = JsonPredictionEncoder(**NAMES).encode(**BATCH)
    assert blocks("json") == [value.decode() + "\n"]


@pytest.mark.parametrize(
    "record",
    [
        *(PREDICTION, DEAD_LETTER, COMPARISON, EVALUATION, INCLUDING_PREDICTION, ROLLOUT),
        *(ROLLOUT_PREDICTION, ROLLOUT_DEAD_LETTER, ROLLOUT_EVALUATION),
    ],
    ids=lambda record: record.name,
)
def test_ids_of_our_records_are_listed_with_their_bytes(record: Any) -> None:
    file = f"{record.reserved_id}-{record.name}.avsc"
    assert f"| {record.reserved_id} | `{frame(record.reserved_id).hex(' ')}` | [{file}](../schemas/{file}) |" in PAGE


def test_every_field_of_a_prediction_and_a_dead_letter_is_named() -> None:
    choice = ROLLOUT_PREDICTION.definition["fields"][-1]["type"][1]
    for definition in (ROLLOUT_PREDICTION.definition, ROLLOUT_DEAD_LETTER.definition, choice):
        missing = [field["name"] for field in definition["fields"] if f"`{field['name']}`" not in PAGE]
        assert missing == []


def test_producers_event_is_what_the_pipelines_schema_reads(tmp_path: Path) -> None:
    schema_file = shutil.copy(FLIGHT_SCHEMA, tmp_path)
    producer = program(0)
    value = producer["encode"](producer["EVENT"], schema_file)
    assert value[:5] == b"\x00\x00\x00\x00\x01"
    definition = json.loads(FLIGHT_SCHEMA.read_text(encoding="utf-8"))
    assert decode_row(value, definition) == producer["EVENT"] | {"departed_at": "2013-09-01T05:15:00Z"}


def test_consumer_reads_predictions() -> None:
    schemas = {1000001: load(OWN_SCHEMAS_FOLDER / "1000001-prediction-v1.avsc")}
    outputs = {
        "p": np.array([0.5]),
        "classes": np.array([["late", "on time"]], object),
        "grid": np.ones((1, 2, 2), int),
    }
    [value] = PredictionEncoder(PREDICTION.reserved_id, **NAMES).encode(**BATCH | {"outputs": outputs})
    prediction = program(1)["decode"](value, schemas)
    assert prediction["outputs"] == {"p": 0.5, "classes": ["late", "on time"], "grid": [1, 1, 1, 1]}
    assert {name: prediction[name] for name in ORIGIN} == ORIGIN


def test_consumer_reads_dead_letters() -> None:
    schemas = {1000002: load(OWN_SCHEMAS_FOLDER / "1000002-dead-letter-v1.avsc")}
    letter = DeadLetter("undecodable", "ends early", "delay", "in", 0, 7, -1, 0, key=None, value=b"\0")
    read = program(1)["decode"](encoded(letter), schemas)
    assert (read["reason"], read["offset"], read["value"]) == ("undecodable", 7, b"\0")


def test_event_of_the_producer_of_json_is_that_of_the_producer_of_avro() -> None:
    producer = program(2)
    assert producer["EVENT"] == program(0)["EVENT"]
    assert json.loads(producer["encode"](producer["EVENT"])) == producer["EVENT"]
    with pytest.raises(ValueError, match="Out of range float values"):
        producer["encode"]({"departure_delay": float("nan")})


def test_main_parts_compile_and_use_only_kafka_and_avro() -> None:
    imported = set(re.findall(r"^(?:from|import) (\w+)", "".join(blocks("python")), re.MULTILINE))
    assert imported == {"io", "json", "pathlib", "struct", "confluent_kafka", "fastavro"}


@pytest.mark.parametrize("name", ["1000001-prediction-v1", "1000002-dead-letter-v1", "1000003-comparison-v1"])
def test_our_schemas_are_avro_by_themselves(name: str) -> None:
    loaded = schema.load_schema(str(OWN_SCHEMAS_FOLDER / f"{name}.avsc"))
    assert isinstance(loaded, dict)
    assert loaded["type"] == "record"
