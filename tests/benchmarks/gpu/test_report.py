"""The report says what was measured, where, and what was left out."""

import xml.etree.ElementTree as ET
from dataclasses import asdict
from typing import Any

from benchmarks.gpu.report import NO_GPU, Point, markdown, plot

POINTS = [
    Point("onnx", 1, 1, 16, 8_000, 6_000, 50.4, 40.0),
    Point("onnx", 2, 2, 16, 12_800, 9_600, 90.0, 80.0),
    Point("torch", 1, 1, 16, 4_000, 4_400, None, None),
]


def report(device: str = "cuda", left_out: dict[str, str] | None = None) -> dict[str, Any]:
    points = [asdict(point) for point in POINTS]
    return {"device": device, "machine": {"cores": 16, "gpu": "H200"}, "points": points, "left_out": left_out or {}}


def test_what_it_was_made_on_is_named() -> None:
    assert "| cores | 16 |\n| gpu | H200 |" in markdown(report())


def test_a_report_from_the_cpu_says_so() -> None:
    assert NO_GPU in markdown(report("cpu"))
    assert NO_GPU not in markdown(report("cuda"))


def test_each_executor_has_a_table() -> None:
    _, onnx, torch = markdown(report()).split("\n## ")
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
