"""The report of how fast a rollout is evaluated."""

from typing import Any

from benchmarks.evaluation import CASES, markdown, records


def run(case: str, rate: float) -> dict[str, Any]:
    return {
        "case": case, "rate": rate, "cpu_us": 20.0, "evaluation_s": 0.5, "figures_s": 1.0, "peak_mib": 400.0, "kept": 400_000,
        "labels": 1000,
    }  # fmt: skip


def test_report_has_the_middle_of_each_case_and_the_slowest_run() -> None:
    runs = [run(case.name, rate) for rate in (40_000.0, 20_000.0, 30_000.0) for case in CASES]
    text = markdown({"machine": {"cores": 2}, "events": 400_000, "runs": runs})
    for case in CASES:
        assert f"| {case.name} | 30,000 (20,000-40,000) | 20 (20-20) | 0.50 | 1.00 | 400 | 400,000 |" in text
    assert "The median of 3 rounds" in text
    assert "The slowest run read 20,000 events/s. The aim is 10,000." in text


def test_each_event_has_a_label() -> None:
    written = records("shop", "avro", 1_790_000_000_000)
    kinds = [next(written)[0] for _ in range(1000)]
    assert kinds == ["predictions"] * 500 + ["labels"] * 500
