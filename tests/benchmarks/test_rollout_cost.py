"""The report on the cost of a rollout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import rollout_cost, rollout_parts

if TYPE_CHECKING:
    import pytest


def test_parts_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout_parts, "ROUNDS", 1)
    monkeypatch.setattr(rollout_parts, "EVENTS", rollout_parts.BLOCK)
    assert len(rollout_parts.measured_parts()) == 3


def test_versions_of_a_round_are_compared_with_each_other() -> None:
    turns = [
        {"name": name, "us": us * load}
        for load in (1.0, 2.0, 1.5)  # other programs make all turns of a round slower
        for name, us in zip(rollout_cost.SPLITS, (2.0, 2.1, 2.2), strict=True)
    ]
    report = {"turns": turns, "parts": {"routing": 0.02}, "machine": {"cores": 2}, "load_average": 2.5}
    page = rollout_cost.markdown(report)
    assert "busy" not in page
    assert "(a load of 12)" in rollout_cost.markdown(report | {"load_average": 12.0})
    assert "| one version | 3.00 | 1.000 | 1.000 to 1.000 |" in page
    assert "| two, 50 % | 3.15 | 1.050 | 1.050 to 1.050 |" in page
    assert "| routing | 0.020 |" in page
