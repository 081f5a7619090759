"""The report of what shadows cost: medians with their spread, and what was left out."""

from typing import Any

from benchmarks.shadows import BATCHES, markdown


def run(p99: float | None, compared: int | None = None) -> dict[str, Any]:
    return {
        "rate": 50_000.0, "cpu_us": 4.0,
        "latency": None if p99 is None else {"p50": 1.0, "p95": 2.0, "p99": p99},
        "compared": None if compared is None else {"backlog": compared, "fixed rate": 4000},
    }  # fmt: skip


def variant(name: str, version: int | None, *runs: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "version": version, "about": "", "runs": list(runs)}


def test_report_says_what_a_shadow_cost_and_what_it_left_out() -> None:
    found = {
        "machine": {"cores": 2}, "events": 1000, "rate": 1000, "seconds": 4,
        "model_us": {
            "no shadow": {str(events): 10.0 for events in BATCHES},
            "slow": {str(events): 105.0 for events in BATCHES},
        },
        "variants": [
            variant("no shadow", None, run(5.0), run(9.0), run(7.0)),
            variant("slow", 3, run(6.0, 100), run(None, 250), run(8.0, 300)),
        ],
    }  # fmt: skip
    lines = markdown(found).splitlines()
    assert "| no shadow | 1.0 (1.0-1.0) | 2.0 (2.0-2.0) | 7.0 (5.0-9.0) | |  |" in lines
    assert "| slow | 1.0 (1.0-1.0) | 2.0 (2.0-2.0) | 7.0 (6.0-8.0) | 4,000 | 0% |" in lines
    assert "| slow | 50,000 (50,000-50,000) | 4.0 (4.0-4.0) | 250 | 75% |" in lines
    assert "| slow | 105 (10.5) | 105 (10.5) | 105 (10.5) |" in lines
    assert "3 rounds" in markdown(found)
