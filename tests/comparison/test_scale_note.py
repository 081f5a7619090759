"""Scores that can't be probabilities are told, where the file leaves the default task, which compares probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from rich.console import Console

from millstream.consumers.comparison import show
from millstream.consumers.replay import conclusion
from millstream.consumers.replay.evaluated import Evaluated
from millstream.consumers.replay.folder import About, Progress
from millstream.consumers.replay.run import Compared
from millstream.inference.evaluation import Columns, summarise
from tests.comparison.test_pairs import pipeline
from tests.comparison.test_verdict import a_result

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.pipeline.pipeline import Pipeline

MODEL = "{name: m, version: 1}"
WHAT_TO_WRITE = (
    "If the models predict a number, write `comparison: {task: regression}` into pipeline.yaml. If these are scores "
)


def compared_lines(
    one: Pipeline, factor: float, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> str:
    """What `compare --show` prints of scores from 0 to `factor` of the primary, and to 1 of the shadow."""
    monkeypatch.setattr(show, "is_empty", lambda *_: False)
    scores, labels = np.linspace(0, 1, 101), np.full(101, np.nan)
    rows = [a_result(labels, scores * factor, scores)]
    for part in show.results(one, rows, show.judged(one, rows)):
        Console(width=1000).print(part)
    return capsys.readouterr().out


def replayed_lines(one: Pipeline, factor: float, capsys: pytest.CaptureFixture[str]) -> str:
    """What `replay` prints of the same scores."""
    scores, zeros = np.linspace(0, 1, 101), np.zeros(101)
    events = Columns(scores * factor, scores, zeros.astype(np.int8), zeros > 0, zeros, zeros, np.full(101, np.nan))
    evaluated = Evaluated({0: summarise(events, 0.5)}, answered=101, width=1)
    about = About("p", "m", 2, 0, 1, None, None, {}, "g", {})
    for part in conclusion.lines(one, Compared(about, Progress(answered=101), evaluated, ("m 1",))):
        Console(width=1000).print(part)
    return capsys.readouterr().out


def test_scores_of_a_regression_are_told_with_the_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = pipeline(tmp_path, MODEL, "[{version: 2}]")
    for factor in (15_000.0, -15_000.0):
        for said, side in (
            (compared_lines(one, factor, capsys, monkeypatch), "primary"),
            (replayed_lines(one, factor, capsys), "predicted"),
        ):
            assert f"warning: the median score of {side} is {'-' * (factor < 0)}7" in said
            assert WHAT_TO_WRITE in said


@pytest.mark.parametrize(
    ("factor", "section"),
    [
        (1.0, ""),
        (15_000.0, "comparison: {task: regression}"),
        (15_000.0, "comparison: {task: classification}"),
        (15_000.0, "comparison: {threshold: 7000}"),
    ],
)
def test_probabilities_and_what_the_file_states_get_no_warning(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    factor: float,
    section: str,
) -> None:
    one = pipeline(tmp_path, MODEL, f"[{{version: 2}}]\n{section}")
    assert "warning" not in compared_lines(one, factor, capsys, monkeypatch)
    assert "warning" not in replayed_lines(one, factor, capsys)
