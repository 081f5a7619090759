"""The report says what was measured, where, and what was left out."""

import xml.etree.ElementTree as ET
from dataclasses import asdict
from typing import Any

from benchmarks.gpu.report import NO_GPU, Point, markdown, plot, verdict_rows
from benchmarks.gpu.targets import verdicts
from benchmarks.gpu.workers import Found
from benchmarks.targets import Verdict

POINTS = [
    Point("onnx", 1, 1, 16, 8_000, 6_000, 50.4, 40.0),
    Point("onnx", 2, 2, 16, 12_800, 9_600, 90.0, 80.0),
    Point("torch", 1, 1, 16, 4_000, 4_400, None, None),
]


FIGURES: dict[str, Any] = {
    "minilm": {"fp32": {"events_per_second": 1234.5, "gpu_busy_percent": 97.4}},
    "overhead": [
        {"executor": "onnx", "model": "small", "device": "cuda", "bare_us": 10.0, "added_us": 2.0, "share": 0.2}
    ],
}
TARGETS = [Verdict("busy", 97.4, 95, True), Verdict("added", 31.0, 30, False), Verdict("FP16", None, 1.8, True)]


def report(device: str = "cuda", left_out: dict[str, str] | None = None) -> dict[str, Any]:
    return {
        "device": device,
        "machine": {"cores": 16, "gpu": "H200"},
        "targets": verdict_rows(TARGETS, "not measured: needs a GPU"),
        "figures": FIGURES,
        "points": [asdict(point) for point in POINTS],
        "left_out": left_out or {},
    }


def test_each_target_has_what_was_found_or_why_nothing_was() -> None:
    rows = markdown(report()).splitlines()
    assert "| busy | at least 95 | 97.4 | met |" in rows
    assert "| added | at most 30 | 31 | **missed** |" in rows
    assert "| FP16 | at least 1.8 | | not measured: needs a GPU |" in rows
    assert "| executor alone, FP32, batches of 64 | 1,234.5 | 97 % |" in rows
    assert "| onnx, small | 10.0 | 2.0 | 20.0% |" in rows


def test_targets_compare_what_was_measured_on_a_gpu() -> None:
    found = {name: Found(rate, busy) for name, rate, busy in FOUND}
    assert [verdict.found for verdict in verdicts(found, on_gpu=True)] == [96.0, 0.9, 2.0, 25.0]
    assert [verdict.met for verdict in verdicts(found, on_gpu=True)] == [True, False, True, True]
    del found["path"]
    assert [verdict.met for verdict in verdicts(found, on_gpu=True)] == [None, None, True, True]


def test_figures_of_a_cpu_meet_no_target_of_a_gpu() -> None:
    found = {name: Found(rate, None) for name, rate, _ in FOUND}
    assert [verdict.met for verdict in verdicts(found, on_gpu=False)] == [None] * 4


FOUND = [("fp32", 1000.0, 99.0), ("fp16", 2000.0, 99.0), ("single", 40.0, 30.0), ("path", 900.0, 96.0)]


def test_what_it_was_made_on_is_named() -> None:
    assert "| cores | 16 |\n| gpu | H200 |" in markdown(report())


def test_a_report_from_the_cpu_says_so() -> None:
    assert NO_GPU in markdown(report("cpu"))
    assert NO_GPU not in markdown(report("cuda"))


def test_each_executor_has_a_table() -> None:
    _, onnx, torch = markdown(report()).split("\n### ")
    assert "| 1 | 1 | 16 | 2.00 | 8,000 | 6,000 | 75% | 50 % | 40 % |" in onnx
    assert "| 2 | 2 | 16 | 5.00 | 12,800 | 9,600 | 75% | 90 % | 80 % |" in onnx
    assert "| 1 | 1 | 16 | 4.00 | 4,000 | 4,400 | 110% |  |  |" in torch


def test_who_was_left_out_is_named() -> None:
    assert "- torch: not installed" in markdown(report(left_out={"torch": "not installed"}))
    assert "Left out" not in markdown(report())


def test_curves_are_of_one_worker() -> None:
    texts = {text.text for text in ET.fromstring(plot(report())).iter("{http://www.w3.org/2000/svg}text")}
    assert {name for name in texts if name and "in flight" in name} == {
        "onnx path, 1 in flight",
        "onnx alone, 1 in flight",
        "torch path, 1 in flight",
        "torch alone, 1 in flight",
    }
