"""The report of the comparison job's speed: what two processes do of what one does."""

from typing import Any

from benchmarks.comparison import markdown


def run(processes: int, rate: float, cpu_us: float) -> dict[str, Any]:
    return {"processes": processes, "rate": rate, "cpu_us": cpu_us, "share": 1 / processes, "peak_mib": 200.0}


def test_report_says_how_much_more_two_processes_do() -> None:
    runs = [run(1, 8000, 90), run(2, 15_000, 95), run(2, 13_000, 99), run(1, 10_000, 94)]
    text = markdown({"machine": {"cores": 2}, "events": 100_000, "runs": runs})
    assert "| 1 | 9,000 (8,000-10,000) | 92 (90-94) | 100% | 200 |" in text
    assert "| 2 | 14,000 (13,000-15,000) | 97 (95-99) | 50% | 200 |" in text
    assert "**1.56 times**" in text
    assert "**The 2 cores are the broker's, too" in text
