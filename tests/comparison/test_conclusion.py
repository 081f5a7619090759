"""The last line about a shadow says what to do if no figure can be compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millstream.consumers.comparison.conclusion import conclusion
from millstream.consumers.comparison.verdict import verdict
from tests.comparison.test_verdict import window
from tests.pipeline.pipeline_files import SMALL, load

if TYPE_CHECKING:
    from pathlib import Path

LABELS = "labels: {topic: outcomes, event_id: id, value: late, format: json}\n"
ROW = {**window(100), "events": 100, "errors": 0, "labelled": 100}
NO_FIGURE: dict[str, Any] = {"auc_difference": None, "auc_difference_error": None}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            {"labelled": 0, "paired": 0},
            "none of the 100 compared events has a label so far. A label counts if its `late` is",
        ),
        (
            {"labelled": 0, "paired": 0, "late_labels": 7},
            "none of the 100 compared events has a label that counts: 7 labels came after their windows had closed, ",
        ),
        ({"paired": 0}, "100 events have a label, but no score of both models. `millstream check "),
        ({"positives": 0}, "the labels of all 100 paired events are false. The AUC needs some that are true, too"),
        ({"positives": 100}, "the labels of all 100 paired events are true. The AUC needs some that are false, too"),
        (
            {"positives": 1},
            "no window has 2 labels that are true and 2 that are false. Write a longer `comparison.window`",
        ),
        ({"errors": 100}, "it failed on all 100 events. `millstream tail "),
        ({"events": 0}, "no event was compared so far. `millstream tail "),
    ],
)
def test_what_is_missing_is_said_with_what_to_do(tmp_path: Path, row: dict[str, Any], said: str) -> None:
    pipeline = load(tmp_path, f"{SMALL}shadows: [{{version: 2}}]\n{LABELS}")
    rows = [{**ROW, **NO_FIGURE, **row}]
    found = conclusion(pipeline, "version 2 (candidate)", rows, verdict(rows, "classification"))
    assert found.startswith("version 2 (candidate): not decided yet: ")
    label = "true or false, or 1 or 0 (for classes, write `comparison: {task: multiclass}`; for numbers `{task: regression}`)"
    expected = said.replace("its `late` is", f"its `id` is an event's ID and its `late` is {label}")
    assert expected in found


def test_final_windows_without_a_label_are_told_with_what_to_do(tmp_path: Path) -> None:
    labels = LABELS.replace("}", ", wait: 6h}")
    pipeline = load(tmp_path, f"{SMALL}shadows: [{{version: 2}}]\n{labels}")
    none = {**ROW, **NO_FIGURE, "labelled": 0, "paired": 0}
    rows = [{**none, "window_start": number, "final": number > 0} for number in range(3)]
    found = conclusion(pipeline, "version 2", rows, verdict(rows, "classification"))
    assert "2 of 3 windows are final: labels that come for their events now don't count. " in found
    assert "write a longer `labels.wait`, now 6h, for the windows to come" in found
    assert "only the job counts its labels, as unknown_labels" in found
    rows = [{**none, "window_start": 0, "final": False}]
    assert " final: " not in conclusion(pipeline, "version 2", rows, verdict(rows, "classification"))


def test_labels_that_the_file_does_not_name_are_asked_for(tmp_path: Path) -> None:
    pipeline = load(tmp_path, f"{SMALL}shadows: [{{version: 2}}]\n")
    assert "Write `labels:` into pipeline.yaml" in conclusion(pipeline, "v", [ROW], verdict([ROW], "classification"))


def test_labels_that_came_too_late_are_told_behind_the_verdict(tmp_path: Path) -> None:
    pipeline = load(tmp_path, f"{SMALL}shadows: [{{version: 2}}]\n{LABELS}")
    for late, said in (
        (0, ""),
        (
            1,
            "1 label came after its window had closed, not counting windows that are deleted. If that is usual, write a longer "
            "`labels.wait`",
        ),
    ):
        rows = [{**ROW, "late_labels": late}]
        found = conclusion(pipeline, "version 2", rows, verdict(rows, "classification"))
        assert "not decided yet: none" not in found
        assert ("had closed" in found, said in found) == (bool(late), True)
