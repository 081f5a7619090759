"""The report says where the figures are from."""

from benchmarks.gpu.run import markdown


def test_a_report_from_the_cpu_says_so() -> None:
    point = {
        "batch": 1,
        "in_flight": 2,
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
    assert "| 1 | 2 | 1.00 | 10 | 9 | 90% |  |  |" in markdown(report)
