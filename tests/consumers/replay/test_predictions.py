"""Predictions of every form as rows, and what is none."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from millstream.consumers.records import Records
from millstream.consumers.replay import answered_ids
from millstream.consumers.replay.answered_ids import AnsweredIds
from millstream.consumers.replay.answers import Answering
from millstream.consumers.replay.predictions import MOST_NAMES, OTHER, Names, PredictedRows, PredictionDecoder
from millstream.consumers.replay.routing_check import Prediction, RoutingCheck
from millstream.consumers.replay.row_sink import hashes
from millstream.schemas.column import column_of
from millstream.schemas.directory import DirectoryStore
from millstream.schemas.predictions import JsonPredictionEncoder, PredictionEncoder
from millstream.schemas.records import INCLUDING_PREDICTION, OWN_SCHEMAS_FOLDER, PREDICTION
from millstream.schemas.row_models import RowModels
from millstream.schemas.table import Table
from tests.consumers.in_memory import MemoryRecord

IDS = ["a", "b", "c"]
TIMES = np.array([1000, 2000, 3000])
MODELS = RowModels([("m", 1), ("m", 2)], np.array([0, 1, 0]))


def encoded(kind: str, **outputs: Any) -> list[bytes]:
    event = None
    encoder: PredictionEncoder | JsonPredictionEncoder
    if kind == "json":
        encoder = JsonPredictionEncoder(pipeline="p", variant="primary")
    else:
        record = PREDICTION if kind == "avro" else INCLUDING_PREDICTION
        encoder = PredictionEncoder(record.reserved_id, pipeline="p", variant="primary")
        if kind == "including":
            event = Table({"country": column_of(["DE", None, "FR"], "string")})
    return list(encoder.encode(IDS, TIMES, TIMES + 5, TIMES + 25, outputs, event, models=MODELS))


def rows_of(values: list[bytes | None], answering: Answering, segment: str | None = None) -> tuple[Any, PredictedRows]:
    decoder = PredictionDecoder(DirectoryStore(OWN_SCHEMAS_FOLDER), "p")
    predicted = PredictedRows(decoder, answering, segment)
    return predicted.rows(Records.of([MemoryRecord(at, value) for at, value in enumerate(values)])), predicted


@pytest.mark.parametrize("kind", ["avro", "including", "json"])
def test_predictions_of_every_form_make_the_same_rows(kind: str) -> None:
    values = encoded(kind, p=np.array([0.25, np.inf, 0.75], np.float32), n=np.array([1, 2, 3]))
    rows, predicted = rows_of([*values], Answering("p", None, None))
    assert rows["score"].tolist()[::2] == [0.25, 0.75]
    assert np.isnan(rows["score"][1])
    assert (rows["time"].tolist(), rows["ms"].tolist()) == ([1000, 2000, 3000], [20.0] * 3)
    assert [list(predicted.models)[at] for at in rows["model"]] == ["m version 1", "m version 2", "m version 1"]
    assert len(set(rows["id"].tolist())) == 3


def test_segments_are_the_values_of_an_included_field() -> None:
    rows, predicted = rows_of([*encoded("including", p=np.zeros(3))], Answering("p", None, None), "country")
    assert [list(predicted.segments)[at] for at in rows["segment"]] == ["DE", "(none)", "FR"]


def test_other_records_are_left_out_and_counted() -> None:
    good = encoded("avro", p=np.zeros(3))
    foreign = JsonPredictionEncoder(pipeline="q", variant="primary")
    one = TIMES[:1]
    other = list(foreign.encode(IDS[:1], one, one, one, {"p": np.zeros(1)}, models=RowModels([("m", 1)])))
    bad: list[bytes | None] = [None, b"", b"{", b"{}", b"\0\0\0\0\1x", b"\0\0\x0f\x42\x44", good[0][:20], *other]
    rows, predicted = rows_of([good[0], *bad, good[1]], Answering("p", None, None))
    assert len(rows) == 2
    assert predicted.decoder.others == len(bad)


def test_names_beyond_the_limit_share_a_number() -> None:
    names = Names()
    numbers = {names.number(str(at)) for at in range(MOST_NAMES + 50)}
    assert len(numbers) == MOST_NAMES + 1
    assert list(names)[-1] == OTHER
    assert names.number("0") == 0


@pytest.mark.parametrize(
    "odd",
    [
        b'{"a":' + b"[" * 100_000,
        b'{"pipeline":"p","a":"\xff"}',
        b"{",
        b'{"pipeline": "p"}',
        {"outputs": 5},
        {"event_time": 2**63},
        {"ingest_time": "x"},
        {"prediction_time": None},
    ],
)
def test_record_that_is_no_prediction_is_left_out(odd: bytes | dict[str, Any]) -> None:
    first, *others = encoded("json", p=np.array([0.25, 0.5, 0.75]))
    value = odd if isinstance(odd, bytes) else json.dumps({**json.loads(first), **odd}).encode()
    rows, predicted = rows_of([value, *others], Answering("p", None, None))
    assert rows["score"].tolist() == [0.5, 0.75]
    assert predicted.decoder.others == 1


def test_included_fields_that_are_no_object_have_no_segment() -> None:
    first = json.loads(encoded("json", p=np.zeros(3))[0])
    rows, predicted = rows_of([json.dumps({**first, "event": "x"}).encode()], Answering("p", None, None), "country")
    assert [list(predicted.segments)[at] for at in rows["segment"]] == ["(none)"]


def test_only_the_routing_of_answered_events_is_checked() -> None:
    values = encoded("json", p=np.zeros(3))
    rows, _ = rows_of([*values], Answering("p", None, None))
    seen: list[str] = []

    class Noting(RoutingCheck):
        def add(self, predictions: Iterable[Prediction]) -> None:
            seen.extend(str(own["event_id"]) for _, own in predictions)

    answered = AnsweredIds.of([rows[:1], rows[2:]], 2)
    decoder = PredictionDecoder(DirectoryStore(OWN_SCHEMAS_FOLDER), "p")
    predicted = PredictedRows(decoder, Answering("p", None, None), routing=Noting({}), answered=answered)
    predicted.rows(Records.of([MemoryRecord(at, value) for at, value in enumerate(values)]))
    assert seen == ["a", "c"]


def test_of_many_events_a_part_of_the_ids_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answered_ids, "MOST", 1000)
    rows = np.zeros(2500, Answering("p", None, None).row_type)
    rows["id"] = hashes([str(number) for number in range(2500)])
    answered = AnsweredIds.of([rows], 2500)
    assert answered.every == 3
    assert answered.has(rows["id"]).tolist() == (rows["id"] % 3 == 0).tolist()
    assert not AnsweredIds.of([], 0).has(rows["id"]).any()
