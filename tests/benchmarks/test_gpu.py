"""The data path without Kafka runs on any machine, and answers every event."""

from pathlib import Path

from benchmarks.gpu.path import DataPath
from benchmarks.gpu.run import markdown
from benchmarks.load import VECTOR, vector_events, write_vector_model
from inference.executors.choice import open_executor
from inference.repository import load_version
from schemas.packed import Packed


def test_every_event_is_answered(tmp_path: Path) -> None:
    write_vector_model(tmp_path, 1)
    model = load_version(tmp_path / "models", VECTOR.name, 1)
    executor = open_executor(model, device="cpu", max_events=7)
    path = DataPath(tmp_path / "schemas", "vector-event", model.signature, executor, 7)
    values = Packed.of(vector_events(100, 1).values)
    assert path.run(values) > 0  # it raises where events are missing
    executor.close()


def test_a_report_from_the_cpu_says_so() -> None:
    point = {
        "batch": 1,
        "call_ms": 1.0,
        "executor_rate": 10.0,
        "path_rate": 9.0,
        "executor_busy": None,
        "path_busy": None,
        "kept": 0.9,
    }
    report = {"executor": "onnx", "device": "cpu", "points": [point]}
    assert "No GPU was used" in markdown(report)
    assert "No GPU was used" not in markdown({**report, "device": "cuda"})
    assert "| 1 | 1.00 | 10 | 9 | 90% |  |  |" in markdown(report)
