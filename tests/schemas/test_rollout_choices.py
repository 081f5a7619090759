"""Predictions and dead letters of pipelines with a rollout: each says how its variant was chosen; older readers read on."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import fastavro
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from millstream.schemas.column import column_of
from millstream.schemas.dead_letters import DeadLetter, DeadLetterEncoder, decode_dead_letter
from millstream.schemas.prediction_schema import output_types, prediction_schema
from millstream.schemas.predictions import JsonPredictionEncoder, PredictionEncoder
from millstream.schemas.records import (
    DEAD_LETTER,
    INCLUDING_PREDICTION,
    PREDICTION,
    ROLLOUT_DEAD_LETTER,
    ROLLOUT_PREDICTION,
    OwnRecord,
)
from millstream.schemas.rollout_choices import RolloutChoice, RowChoices
from millstream.schemas.row_models import RowModels
from millstream.schemas.table import Table
from millstream.schemas.wire import HEAD_BYTES
from tests.schemas.letters import encoded

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
CHOICES = st.builds(
    RolloutChoice,
    id=NAMES,
    revision=st.integers(1, 2**62),
    assigned=NAMES,
    propensity=st.floats(0, 1),
    randomised=st.booleans(),
    model_ms=st.floats(0, 1e6),
)
LETTERS = DeadLetterEncoder(ROLLOUT_DEAD_LETTER.reserved_id, rollout=True)
LETTER = DeadLetter("model_rejected", "no", "p", "in", 0, 7, -1, 0, key=b"k", value=b"v")


@st.composite
def row_choices(draw: st.DrawFn) -> RowChoices:
    choices = draw(st.lists(st.none() | CHOICES, min_size=1, max_size=4))
    return RowChoices(choices, np.array(draw(st.lists(st.sampled_from(range(len(choices))), min_size=1, max_size=6))))


def batch(rows: int, choices: RowChoices | None = None, *, event: bool = False) -> dict[str, Any]:
    numbers = np.arange(rows)
    names = ["primary", "canary"]
    return {
        "event_ids": list(map(str, range(rows))),
        **dict.fromkeys(("event_times", "ingest_times", "prediction_times"), numbers),
        "outputs": {"y": numbers / 2},
        "models": RowModels([("m", 1), ("m", 2)], numbers % 2, names, choices),
        "event": Table({"a": column_of([str(row) for row in range(rows)], "string")}) if event else None,
    }


def read(value: bytes, writer: OwnRecord, reader: OwnRecord) -> dict[str, Any]:
    body = BytesIO(value[HEAD_BYTES:])
    found: Any = fastavro.schemaless_reader(
        body, fastavro.parse_schema(writer.definition), fastavro.parse_schema(reader.definition)
    )
    assert not body.read()
    assert isinstance(found, dict)
    return found


def written(record: OwnRecord, datum: dict[str, Any]) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(record.definition), datum)
    return out.getvalue()


@given(row_choices(), st.booleans())
def test_avro_is_byte_for_byte_what_fastavro_writes(choices: RowChoices, event: bool) -> None:
    given_, own = batch(len(choices.of_rows), choices, event=event), ROLLOUT_PREDICTION
    values = PredictionEncoder(own.reserved_id, pipeline="p", variant="unused", rollout=True).encode(**given_)
    for row, value in enumerate(values):
        choice = choices.at(row)
        datum = {
            **{"event_id": str(row), "event_time": row, "ingest_time": row, "prediction_time": row, "pipeline": "p"},
            **{"model": "m", "version": 1 + row % 2, "variant": ["primary", "canary"][row % 2]},
            "outputs": {"y": ("double", row / 2)},
            "event": {"a": str(row)} if event else {},
            "rollout": None if choice is None else choice._asdict(),
        }
        assert value[HEAD_BYTES:] == written(own, datum)


@given(row_choices(), st.booleans())
def test_json_says_what_avro_says_and_fits_its_schema(choices: RowChoices, event: bool) -> None:
    given_ = batch(len(choices.of_rows), choices, event=event)
    values = JsonPredictionEncoder(pipeline="p", variant="unused", rollout=True).encode(**given_)
    types = output_types({"y": np.zeros(1)}, allow_nan=False)
    schema = prediction_schema("p", types, {"a": "string"} if event else None, rollout=True)
    validator = Draft202012Validator(schema)
    for row, value in enumerate(values):
        said, choice = json.loads(value), choices.at(row)
        validator.validate(said)
        assert said["rollout"] == (None if choice is None else choice._asdict())
        assert (said["version"], said["variant"]) == (1 + row % 2, ["primary", "canary"][row % 2])
        assert ("event" in said) == event


@given(row_choices())
def test_readers_of_each_prediction_schema_read_the_others(choices: RowChoices) -> None:
    given_ = batch(len(choices.of_rows), choices)
    newest = PredictionEncoder(1, pipeline="p", variant="v", rollout=True).encode(**given_)
    oldest = PredictionEncoder(1, pipeline="p", variant="v").encode(**given_)
    for new, old in zip(newest, oldest, strict=True):
        for reader in (PREDICTION, INCLUDING_PREDICTION):
            assert read(new, ROLLOUT_PREDICTION, reader) == read(old, PREDICTION, reader)
        assert read(old, PREDICTION, ROLLOUT_PREDICTION)["rollout"] is None


def test_while_there_is_no_rollout_predictions_say_so() -> None:
    given_ = batch(2)
    avro = PredictionEncoder(1, pipeline="p", variant="primary", rollout=True).encode(**given_)
    assert [read(value, ROLLOUT_PREDICTION, ROLLOUT_PREDICTION)["rollout"] for value in avro] == [None, None]
    texts = JsonPredictionEncoder(pipeline="p", variant="primary", rollout=True).encode(**given_)
    assert [json.loads(text)["rollout"] for text in texts] == [None, None]


@given(CHOICES | st.none())
def test_dead_letter_says_which_variant_failed(choice: RolloutChoice | None) -> None:
    letter = LETTER._replace(model="m", version=2, variant="canary", rollout=choice)
    value = encoded(letter, LETTERS)
    assert decode_dead_letter(value) == letter
    assert read(value, ROLLOUT_DEAD_LETTER, ROLLOUT_DEAD_LETTER)["rollout"] == (choice and choice._asdict())
    assert read(value, ROLLOUT_DEAD_LETTER, DEAD_LETTER)["error"] == "no"


def test_dead_letter_of_an_event_that_failed_before_the_model_names_none() -> None:
    assert decode_dead_letter(encoded(LETTER, LETTERS)) == LETTER
    assert decode_dead_letter(encoded(LETTER)) == LETTER
