"""What `--show` prints of labels that are left out, and of very many windows, and what the job's log says of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from rich.console import Console

from millstream.consumers.comparison import show
from millstream.consumers.comparison.join import join_settings
from millstream.consumers.comparison.many_windows import MANY_WINDOWS, many_windows
from tests.comparison.test_pairs import pipeline
from tests.comparison.test_verdict import a_result

if TYPE_CHECKING:
    from pathlib import Path


def test_newest_windows_are_shown_and_the_others_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(show, "is_empty", lambda *_: False)
    ones = np.ones(1)
    windows = MANY_WINDOWS + 100
    rows = [{**a_result(ones, ones, ones), "window_start": 3_600_000 * number} for number in range(windows)]
    one = pipeline(tmp_path, "{name: m, version: 1}")
    console = Console(width=1000)
    for part in show.results(one, rows, show.judged(one, rows)):
        console.print(part)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{windows - show.MAX_SHOWN} older results aren't shown: `millstream compare ")
    assert "--show --json` prints all" in lines[0]
    assert sum("1970-01-" in line for line in lines) == show.MAX_SHOWN
    # The topic keeps the results of all windows for ever. Only a few of these windows are open.
    assert not any(f"{windows} windows" in line or "`comparison.window`" in line for line in lines)


@pytest.mark.parametrize(
    ("repeated", "late", "left_out"),
    [
        (0, 0, ""),
        (1200, 0, ", labels left out: 1,200 repeated"),
        (0, 3, ", labels left out: 3 late"),
        (2, 3, ", labels left out: 2 repeated and 3 late"),
    ],
)
def test_labels_that_do_not_count_are_shown(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    repeated: int,
    late: int,
    left_out: str,
) -> None:
    monkeypatch.setattr(show, "is_empty", lambda *_: False)
    ones = np.ones(1)
    row = {**a_result(ones, ones, ones), "repeated_labels": repeated, "late_labels": late}
    one = pipeline(tmp_path, "{name: m, version: 1}")
    console = Console(width=1000)
    for part in show.results(one, [row], show.judged(one, [row])):
        console.print(part)
    assert f", paired {row['paired']}{left_out}\n" in capsys.readouterr().out


def test_windows_that_are_left_out_are_said(tmp_path: Path) -> None:
    one = pipeline(tmp_path, "{name: m, version: 1}")
    most = join_settings(one, None).most_windows
    assert many_windows(one, MANY_WINDOWS - 1) == ""
    assert "left out" not in many_windows(one, max(MANY_WINDOWS, most - 1))
    assert f"at most {most:,} open windows. Comparisons of older windows are left out" in many_windows(one, most)


def test_few_labels_are_a_reason_only_if_the_pipeline_has_labels(tmp_path: Path) -> None:
    one = pipeline(tmp_path, "{name: m, version: 1}")
    assert ". Updates of the results take long" in many_windows(one, MANY_WINDOWS)
    labels = "{topic: outcomes, format: json, event_id: id, value: label}"
    one = pipeline(tmp_path, "{name: m, version: 1}", f"[{{version: 2}}]\nlabels: {labels}")
    assert "Each has few labels, and updates of the results take long" in many_windows(one, MANY_WINDOWS)
