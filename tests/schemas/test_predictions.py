import json
import math
from io import BytesIO
from typing import Any, Literal

import fastavro
import msgspec
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from millstream.schemas.predictions import JsonPredictionEncoder, PredictionEncoder, UnsupportedOutputError
from millstream.schemas.records import PREDICTION
from millstream.schemas.row_models import RowModels
from tests.schemas.json_values import as_json
from tests.schemas.row_models import ONE, model_of, row_models, variant_of

SCHEMA_ID = 1_000_001
HEAD = b"\x00\x00\x0f\x42\x41"
SCHEMA = fastavro.parse_schema(PREDICTION.definition)
ORIGIN: dict[str, Any] = {"pipeline": "flights-delay", "variant": "primary"}
INT64 = st.integers(-(2**63), 2**63 - 1)
# Small, typical and extreme numbers in one array: their varints have every length.
LONGS = st.one_of(st.integers(-64, 63), st.integers(10**12, 2 * 10**12), INT64)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)


def floats(width: Literal[16, 32, 64]) -> st.SearchStrategy[float]:
    """Floats with one NaN: fastavro takes numbers through Python, which doesn't keep every NaN's bits."""
    return st.floats(width=width).map(lambda value: math.nan if math.isnan(value) else value)


ELEMENTS: dict[str, st.SearchStrategy[Any]] = {
    "<f2": floats(16),
    "<f4": floats(32),
    ">f4": floats(32),
    ">f8": floats(64),
    "<i8": LONGS,
    ">i8": LONGS,
    "i1": st.integers(-128, 127),
    "u4": st.integers(0, 2**32 - 1),
    "?": st.booleans(),
    "O": TEXTS,
}


def encoder(**origin: Any) -> PredictionEncoder:
    return PredictionEncoder(SCHEMA_ID, **{**ORIGIN, **origin})


def times(values: list[int]) -> npt.NDArray[np.int64]:
    return np.array(values, np.int64)


def encode_one(**outputs: npt.NDArray[Any]) -> dict[str, Any]:
    [value] = encoder().encode(["e"], times([1]), times([2]), times([3]), outputs, models=ONE)
    return read(value)["outputs"]  # type: ignore[no-any-return]


def read(value: bytes) -> dict[str, Any]:
    body = BytesIO(value)
    assert body.read(5) == HEAD
    datum: Any = fastavro.schemaless_reader(body, SCHEMA, None)
    assert body.read() == b""
    assert isinstance(datum, dict)
    return datum


def branch(value: Any, dtype: np.dtype[Any]) -> tuple[str, Any]:
    """The value as fastavro writes it in the branch that the wire format gives this dtype."""
    if isinstance(value, list):
        return "array", [branch(item, dtype) for item in value]
    names = {"f2": "float", "f4": "float", "f8": "double", "b1": "boolean"}
    return names.get(dtype.str[1:], "long" if dtype.kind in "iu" else "string"), value


@st.composite
def batches(draw: st.DrawFn) -> dict[str, Any]:
    rows = draw(st.integers(0, 6))
    outputs = {}
    for name in draw(st.lists(TEXTS, max_size=4, unique=True)):
        items = draw(st.sampled_from([(), (1,), (0,), (3,), (2, 2), (1, 1), (65,)]))
        dtype = draw(st.sampled_from(sorted(ELEMENTS)))
        outputs[name] = draw(hnp.arrays(np.dtype(dtype), (rows, *items), elements=ELEMENTS[dtype]))
    ids = st.one_of(TEXTS, st.sampled_from(["", "same", "x" * 2000]))
    return {
        "event_ids": draw(st.lists(ids, min_size=rows, max_size=rows)),
        "event_times": times(draw(st.lists(LONGS, min_size=rows, max_size=rows))),
        "ingest_times": times(draw(st.lists(LONGS, min_size=rows, max_size=rows))),
        "prediction_times": times(draw(st.lists(LONGS, min_size=rows, max_size=rows))),
        "outputs": outputs,
        "models": draw(row_models(rows)),
    }


def identity(batch: dict[str, Any], row: int, origin: dict[str, str]) -> dict[str, Any]:
    model, version = model_of(batch["models"], row)
    variant = variant_of(batch["models"], row, origin["variant"])
    return {**origin, "model": model, "version": version, "variant": variant}


def expected(batch: dict[str, Any], row: int, origin: dict[str, Any]) -> bytes:
    answers = {}
    for name, values in batch["outputs"].items():
        cells = values[row : row + 1].reshape(-1).tolist()
        is_scalar = values.shape[1:] in {(), (1,)}
        answers[name] = branch(cells[0] if is_scalar else cells, values.dtype)
    datum = {
        **identity(batch, row, origin),
        "event_id": batch["event_ids"][row],
        "event_time": int(batch["event_times"][row]),
        "ingest_time": int(batch["ingest_times"][row]),
        "prediction_time": int(batch["prediction_times"][row]),
        "outputs": answers,
    }
    out = BytesIO()
    fastavro.schemaless_writer(out, SCHEMA, datum)
    return HEAD + out.getvalue()


@given(batches(), TEXTS, TEXTS)
def test_encoding_is_byte_for_byte_what_fastavro_writes(batch: dict[str, Any], pipeline: str, variant: str) -> None:
    origin = {"pipeline": pipeline, "variant": variant}
    values = encoder(**origin).encode(**batch)
    assert list(values) == [expected(batch, row, origin) for row in range(len(batch["event_ids"]))]


@given(st.lists(st.tuples(LONGS, st.integers(1, 40)), min_size=1, max_size=6))
def test_times_that_stay_for_a_while_are_each_rows_own(runs: list[tuple[int, int]]) -> None:
    moments = [time for time, rows in runs for _ in range(rows)]
    batch: dict[str, Any] = {
        "event_ids": [str(row) for row in range(len(moments))],
        "event_times": times(list(range(len(moments)))),
        "ingest_times": times(moments),
        "prediction_times": times(moments[::-1]),
        "outputs": {},
        "models": ONE,
    }
    assert list(encoder().encode(**batch)) == [expected(batch, row, ORIGIN) for row in range(len(moments))]


@pytest.mark.parametrize("bits", range(64))
def test_longs_at_every_varint_length_border(bits: int) -> None:
    near = [sign * (1 << bits) + step for sign in (1, -1) for step in (-1, 0, 1)]
    values = [value for value in near if -(2**63) <= value < 2**63]
    batch: dict[str, Any] = {
        "event_ids": [str(value) for value in values],
        "event_times": times(values),
        "ingest_times": times(values[:1] * len(values)),
        "prediction_times": times(values),
        "outputs": {"long": times(values), "longs": times(values * 2).reshape(len(values), 2)},
        "models": ONE,
    }
    assert list(encoder().encode(**batch)) == [expected(batch, row, ORIGIN) for row in range(len(values))]


def test_reader_sees_every_field() -> None:
    [value] = encoder().encode(
        ["e-1"],
        times([1_378_012_500_000]),
        times([1_378_012_500_010]),
        times([1_378_012_500_015]),
        {"p": np.array([0.5], np.float32)},
        models=ONE,
    )
    prediction = read(value)
    assert list(prediction) == [field["name"] for field in PREDICTION.definition["fields"]]
    assert prediction["event_time"].isoformat() == "2013-09-01T05:15:00+00:00"
    assert (prediction["prediction_time"] - prediction["ingest_time"]).total_seconds() == 0.005
    assert prediction["outputs"] == {"p": 0.5}


def test_no_events_give_no_records() -> None:
    assert not len(
        encoder().encode([], times([]), times([]), times([]), {"p": np.empty((0, 4), np.float32)}, models=ONE)
    )


def test_views_that_are_not_contiguous_are_encoded_by_their_values() -> None:
    matrix = np.arange(12, dtype=np.float32).reshape(3, 4)
    values = encoder().encode(
        ["a", "b"],
        times([1, 2]),
        times([1, 2]),
        times([3, 3]),
        {"x": matrix[::2, ::-1], "y": matrix[1:, 2]},
        models=ONE,
    )
    assert [read(value)["outputs"] for value in values] == [
        {"x": [3.0, 2.0, 1.0, 0.0], "y": 6.0},
        {"x": [11.0, 10.0, 9.0, 8.0], "y": 10.0},
    ]


def test_texts_of_numpy_dtypes_are_strings() -> None:
    assert encode_one(a=np.array(["late"]), b=np.array([["x", "éé"]], np.dtypes.StringDType())) == {
        "a": "late",
        "b": ["x", "éé"],
    }


@pytest.mark.parametrize(
    ("values", "found"),
    [
        (np.array([1j]), "complex128"),
        (np.array([1], np.uint64), "uint64"),
        (np.array([b"x"]), r"\|S1"),
        (np.array(["2013-09-01"], "datetime64[ms]"), "datetime64"),
        (np.array([None], object), "NoneType"),
        (np.array([["text", 1]], object), "item 1: expected str instance, int found"),
        (np.array(["\ud800"], object), "surrogates not allowed"),
        (np.array([1.0, 2.0]), r"shape \[1, \.\.\.\], found \[2\]"),
        (np.array(1.0), r"found \[\]"),
    ],
)
@pytest.mark.parametrize("rows", [encoder(), JsonPredictionEncoder(**ORIGIN)], ids=["avro", "json"])
def test_output_that_no_prediction_can_hold_is_refused_by_name(
    rows: PredictionEncoder, values: npt.NDArray[Any], found: str
) -> None:
    with pytest.raises(UnsupportedOutputError, match=f"output 'late': expected .*{found}"):
        rows.encode(["e"], times([1]), times([2]), times([3]), {"late": values}, models=ONE)


def no_constants(text: str) -> None:
    raise AssertionError(f"not JSON: {text}")


@given(batches())
def test_json_says_what_avro_says(batch: dict[str, Any]) -> None:
    values = JsonPredictionEncoder(**ORIGIN).encode(**batch)
    assert len(values) == len(batch["event_ids"])
    for row, value in enumerate(values):
        cells = {name: output[row : row + 1].reshape(-1).tolist() for name, output in batch["outputs"].items()}
        prediction = json.loads(value, parse_constant=no_constants)
        assert prediction == {
            **identity(batch, row, ORIGIN),
            "event_id": batch["event_ids"][row],
            "event_time": batch["event_times"][row],
            "ingest_time": batch["ingest_times"][row],
            "prediction_time": batch["prediction_times"][row],
            "outputs": {
                name: as_json(cells[name][0] if output.shape[1:] in {(), (1,)} else cells[name])
                for name, output in batch["outputs"].items()
            },
        }
        assert list(prediction) == [field["name"] for field in PREDICTION.definition["fields"]]


def test_json_takes_names_and_values_as_they_are() -> None:
    odd: dict[str, Any] = {"pipeline": "100%", "variant": 'a"%s"\n'}
    model = {"model": '%b"', "version": 1}
    ids, outputs = ["%b", "line\nbreak\u2028", ""], {"%d ü": np.array(["%%", "\n", '"'], object), "x": np.zeros((3, 2))}
    values = JsonPredictionEncoder(**odd).encode(
        ids, times([1, 2, 3]), times([4, 5, 6]), times([7, 7, 8]), outputs, models=RowModels([('%b"', 1)])
    )
    said = [json.loads(value) for value in values]
    assert [one["event_id"] for one in said] == ids
    assert [one["outputs"] for one in said] == [{"%d ü": text, "x": [0.0, 0.0]} for text in ("%%", "\n", '"')]
    assert all({name: one[name] for name in odd | model} == odd | model for one in said)


@given(st.lists(TEXTS | st.text("abc/é\x7f\u2028", max_size=4), min_size=1, max_size=4))
def test_json_has_each_id_as_it_is(ids: list[str]) -> None:
    some = times([-1] * len(ids))
    values = JsonPredictionEncoder(**ORIGIN).encode(ids, some, some, some, {"x": np.zeros(len(ids))}, models=ONE)
    for value, event_id in zip(values, ids, strict=True):
        assert value.startswith(b'{"event_id":%b,' % msgspec.json.encode(event_id))


def test_json_of_no_events() -> None:
    encoder = JsonPredictionEncoder(**ORIGIN)
    assert not len(encoder.encode([], times([]), times([]), times([]), {"x": np.zeros(0)}, models=ONE))
