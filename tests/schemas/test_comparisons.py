import io
import json
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.schemas.comparisons import (
    ComparisonDecoder,
    ComparisonEncoder,
    Pair,
    PrimaryRows,
    Variant,
    compared_output,
)
from millstream.schemas.directory import DirectoryStore
from millstream.schemas.predictions import UnsupportedOutputError
from millstream.schemas.records import COMPARISON, OWN_SCHEMAS_FOLDER
from millstream.schemas.wire import HEAD_BYTES, frame
from tests.schemas.row_models import ONE, model_of, row_models

SCHEMA = fastavro.parse_schema(COMPARISON.definition)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
TIMES = st.integers(-(2**62), 2**62)
STORE = DirectoryStore(OWN_SCHEMAS_FOLDER)


def branch(value: Any, dtype: np.dtype[Any]) -> tuple[str, Any]:
    if isinstance(value, list):
        return "array", [branch(item, dtype) for item in value]
    return {"f4": "float", "f8": "double", "b1": "boolean"}.get(dtype.str[1:], "long"), value


def answers(outputs: dict[str, np.ndarray[Any, Any]] | None, row: int) -> dict[str, tuple[str, Any]] | None:
    return None if outputs is None else {name: branch(a[row].tolist(), a.dtype) for name, a in outputs.items()}


@st.composite
def batches(draw: st.DrawFn) -> dict[str, Any]:
    rows = draw(st.integers(1, 6))
    failed = draw(st.one_of(st.just(set[int]()), st.sets(st.integers(0, rows - 1)), st.just(set(range(rows)))))
    good = rows - len(failed)
    seed = draw(st.integers(0, 99))
    random = np.random.default_rng(seed)

    def outputs(count: int) -> dict[str, np.ndarray[Any, Any]]:
        every: dict[str, np.ndarray[Any, Any]] = {
            "p": random.random(count, np.float32),
            "classes": random.random((count, 3)),
            "n": random.integers(-(10**12), 10**12, count),
            "yes": random.random(count) > 0.5,
        }
        return {name: every[name] for name in draw(st.lists(st.sampled_from(sorted(every)), unique=True))}

    return {
        "event_ids": draw(st.lists(TEXTS, min_size=rows, max_size=rows)),
        "keys": draw(st.lists(st.one_of(st.none(), st.binary(max_size=200)), min_size=rows, max_size=rows)),
        "event_times": np.array(draw(st.lists(TIMES, min_size=rows, max_size=rows)), np.int64),
        "primary": PrimaryRows(
            draw(row_models(rows)), outputs(rows), draw(st.one_of(st.just(1.5), st.just(random.random(rows))))
        ),
        "shadow_outputs": outputs(good) if good else None,
        "shadow_latency_ms": draw(st.one_of(st.just(0.25), st.just(random.random(rows)))),
        "errors": {row: draw(TEXTS) for row in sorted(failed)},
    }


def one(latency: Any, row: int) -> float:
    return float(latency[row] if isinstance(latency, np.ndarray) else latency)


def expected(batch: dict[str, Any], row: int, pipeline: str) -> bytes:
    good = [other for other in range(len(batch["event_ids"])) if other not in batch["errors"]]
    failed = row in batch["errors"]
    datum = {
        "event_id": batch["event_ids"][row],
        "key": batch["keys"][row],
        "event_time": int(batch["event_times"][row]),
        "pipeline": pipeline,
        "primary": {
            "model": model_of(batch["primary"].models, row)[0],
            "version": model_of(batch["primary"].models, row)[1],
            "outputs": answers(batch["primary"].outputs, row),
            "latency_ms": one(batch["primary"].latency_ms, row),
        },
        "shadow": {
            "model": "other",
            "version": 4,
            "variant": "candidate",
            "outputs": None if failed else ("map", answers(batch["shadow_outputs"], good.index(row))),
            "error": batch["errors"].get(row),
            "latency_ms": one(batch["shadow_latency_ms"], row),
        },
    }
    out = io.BytesIO()
    fastavro.schemaless_writer(out, SCHEMA, datum)
    return frame(COMPARISON.reserved_id) + out.getvalue()


def encoder(pipeline: str = "p") -> ComparisonEncoder:
    shadow = Variant("other", 4, "candidate")
    return ComparisonEncoder(COMPARISON.reserved_id, pipeline, shadow=shadow)


@given(batches(), TEXTS)
def test_encoding_is_byte_for_byte_what_fastavro_writes(batch: dict[str, Any], pipeline: str) -> None:
    values = encoder(pipeline).encode(**batch)
    assert values == [expected(batch, row, pipeline) for row in range(len(batch["event_ids"]))]


@given(batches())
def test_decoder_reads_back_what_was_encoded(batch: dict[str, Any]) -> None:
    read, bad = ComparisonDecoder(STORE).decode(encoder().encode(**batch))
    rows = len(batch["event_ids"])
    assert bad == {}
    assert read.ids == batch["event_ids"]
    assert read.event_times.tolist() == batch["event_times"].tolist()
    assert [read.pairs[place] for place in read.pair] == [
        Pair(Variant(*model_of(batch["primary"].models, row), "primary"), Variant("other", 4, "candidate"))
        for row in range(rows)
    ]
    assert [outputs is None for outputs in read.shadow] == [row in batch["errors"] for row in range(rows)]
    assert read.primary_ms.tolist() == [one(batch["primary"].latency_ms, row) for row in range(rows)]
    for row in range(rows):
        assert read.primary[row] == {name: values[row].tolist() for name, values in batch["primary"].outputs.items()}


def test_what_is_no_comparison_is_told_and_the_rest_is_read() -> None:
    time = np.array([1])
    [good] = encoder().encode(["e"], [None], time, PrimaryRows(ONE, {"p": np.ones(1)}, 1.0), {"p": np.ones(1)}, 1.0)
    values = [b"junk", good, None, good[:-1], good + b"\0", frame(4711) + good[HEAD_BYTES:]]
    read, bad = ComparisonDecoder(STORE).decode(values)
    assert (read.ids, read.rows.tolist(), sorted(bad)) == (["e"], [1], [0, 2, 3, 4, 5])


def test_comparison_written_with_a_later_schema_is_read(tmp_path: Path) -> None:
    later = {**COMPARISON.definition, "fields": [*COMPARISON.definition["fields"], {"name": "x", "type": "int"}]}
    (tmp_path / "7-comparison-v2.avsc").write_text(json.dumps(later))
    time = np.array([1])
    [value] = encoder().encode(["e"], [None], time, PrimaryRows(ONE, {"p": np.ones(1)}, 1.0), {"p": np.ones(1)}, 1.0)
    read, bad = ComparisonDecoder(DirectoryStore(tmp_path)).decode([frame(7) + value[HEAD_BYTES:] + b"\x02"])
    assert (read.ids, bad) == (["e"], {})


def test_no_events_give_no_records() -> None:
    assert encoder().encode([], [], np.empty(0, np.int64), PrimaryRows(ONE, {}, 1.0), {}, 1.0) == []


def test_event_with_neither_answer_nor_error_is_refused() -> None:
    with pytest.raises(UnsupportedOutputError, match="found neither for 1 of 2"):
        encoder().encode(
            ["a", "b"], [None] * 2, np.zeros(2, np.int64), PrimaryRows(ONE, {}, 1.0), None, 1.0, {0: "broken"}
        )


def test_error_that_is_no_valid_unicode_is_written_as_far_as_it_is() -> None:
    """As a model's own Python code may raise it."""
    encoder = ComparisonEncoder(COMPARISON.reserved_id, "p", shadow=Variant("m", 2))
    values = encoder.encode(["e"], [None], np.array([1]), PrimaryRows(ONE, {}, 1.0), None, 1.0, {0: "no file \udcff"})
    assert ComparisonDecoder(STORE).decode(values)[1] == {}
    assert b"no file ?" in values[0]


@pytest.mark.parametrize(
    ("named", "primary", "shadow", "compared"),
    [
        ("score", {"a": 0.5, "score": 0.5}, {"score": 0.5}, "score"),
        (None, {"a": 0.5, "b": 0.5, "c": 0.5}, {"c": 0.5, "b": 0.5}, "b"),
        (None, {"a": 0.5}, {"b": 0.5}, None),
        (
            None,
            {"best": ["late"], "best_scores": [0.9], "p": 0.9},
            {"best": ["ok"], "best_scores": [0.7], "p": 0.3},
            "p",
        ),
        (None, {"label": 1, "p": 0.9}, {"label": 0, "p": 0.3}, "p"),
        (None, {"a": 1, "p": 0.9}, {"a": "x", "p": 0.3}, "p"),
        (None, {"best": ["late"], "best_scores": [0.9]}, {"best": ["ok"], "best_scores": [0.7]}, "best"),
        (None, {"best": "late", "best_scores": 0.9}, {"best": "ok", "best_scores": 0.7}, "best"),
    ],
)
def test_compared_output_is_the_named_or_the_best_score_that_both_models_have(
    named: str | None, primary: dict[str, Any], shadow: dict[str, Any], compared: str | None
) -> None:
    assert compared_output(named, primary, shadow) == compared


def test_array_is_the_compared_output_if_an_item_is_named() -> None:
    outputs = {"amount": 2.5, "scores": [0.2, 0.8]}
    assert compared_output(None, outputs, outputs, item=1) == "scores"
    assert compared_output(None, outputs, outputs) == "amount"
