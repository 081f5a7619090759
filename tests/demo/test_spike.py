"""The parts of the spike demo that need no broker; `make demo ARGS="--load spike"` is the whole."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from millstream.consumers.cli import main as cli
from millstream.consumers.demo.chart import Line, Panel, chart
from millstream.consumers.demo.spike import AFTER, BEFORE, SPIKE, SPIKE_FACTOR, TARGET_LAG, Load, Sample, back_after


def sample(at: float, lag: float) -> Sample:
    return Sample(at=at, sent=0, ready=1, wanted=1, lag_seconds=lag, lag_events=0)


def test_load_is_its_base_with_a_spike_in_the_middle() -> None:
    load = Load()
    assert load(0) == 0
    load.add(500)
    assert load(0) == load(100) == 500
    load.begin(50)

    def rate(at: float) -> float:
        """Events a second so long after the beginning."""
        return load(100 + at + 1) - load(100 + at)

    assert rate(0) == rate(BEFORE - 1) == pytest.approx(50)
    assert rate(BEFORE) == rate(BEFORE + SPIKE - 1) == pytest.approx(50 * SPIKE_FACTOR)
    assert rate(BEFORE + SPIKE) == pytest.approx(50)
    assert rate(BEFORE + SPIKE + AFTER) == 0


def test_lag_is_back_when_it_stays_under_the_target() -> None:
    over = TARGET_LAG + 1
    assert back_after([sample(at, 0.1) for at in range(10)], 5) == 0
    assert back_after([sample(0, 0), sample(4, over), sample(5, 0), sample(9, 0)], 6) == 0
    assert back_after([sample(0, 0), sample(8, over), sample(9, 0)], 6) == 3
    assert back_after([sample(7, over), sample(8, 0), sample(9, over)], 6) is None


def test_spike_without_a_real_broker_says_how_to_get_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KAFKA_BOOTSTRAP", raising=False)
    assert cli.run(["demo", "--load", "spike"]) == 1
    said = capsys.readouterr().err
    assert "millstream broker --run millstream demo --load spike" in said
    assert "--bootstrap" in said


def test_chart_is_a_picture_of_all_its_lines() -> None:
    xs = [0.0, 1.0, 2.0, 3.0]
    lines = [Line("a < b", "#111", xs, [0, 0, 5, 5], steps=True), Line("c", "#222", xs, [1, 2, 3, 900.0], dashed=True)]
    root = ET.fromstring(chart("a title & more", [Panel("one", lines), Panel("two", lines[:1], most=2)], band=(1, 2)))
    space = "{http://www.w3.org/2000/svg}"
    texts = [element.text for element in root.iter(f"{space}text")]
    assert {"a title & more", "one", "two", "a < b", "c"} <= set(texts)
    drawn = [element for element in root.iter(f"{space}path") if element.get("fill") == "none"]
    assert [element.get("stroke") for element in drawn] == ["#111", "#222", "#111"]
    assert len([element for element in root.iter(f"{space}rect") if element.get("x")]) == 2


def test_chart_of_nothing_but_zeros_can_be_drawn() -> None:
    ET.fromstring(chart("idle", [Panel("lag", [Line("lag", "#111", [0.0, 10.0], [0.0, 0.0])])]))
