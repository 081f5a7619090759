"""The report of how events a second grow with the workers."""

from typing import Any

from benchmarks.workers import markdown


def runs(*rates: float, cpu_us: float) -> list[dict[str, Any]]:
    return [{"rate": rate, "cpu_us": cpu_us} for rate in rates]


def test_report_holds_medians_against_one_workers() -> None:
    report = {
        "machine": {"cores": 2},
        "workloads": {
            "device": {"1": runs(900, 1000, 5000, cpu_us=10), "2": runs(1990, 1980, 2500, cpu_us=12)},
            "vector": {"1": runs(500_000, cpu_us=2), "2": runs(450_000, cpu_us=3)},
        },
    }
    lines = markdown(report).splitlines()
    assert "| 1 | 1,000 | 1.00 | 10.0 | 0.01 |" in lines
    assert "| 2 | 1,990 | 1.99 | 12.0 | 0.02 |" in lines
    assert "| 2 | 450,000 | 0.90 | 3.0 | 1.35 |" in lines
