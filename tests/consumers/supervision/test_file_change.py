"""A pipeline file that changes while `millstream run` runs is told at the next start of a worker."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from millstream.consumers.supervision.file_change import FileChange
from tests.pipeline.pipeline_files import SMALL, load

if TYPE_CHECKING:
    from pathlib import Path


SAME = "so that all have the same"


@pytest.mark.parametrize(
    ("text", "end"),
    [
        (f"{SMALL}commit_every: 1s\n", SAME),
        (f"{SMALL}delivery: sometimes\n", SAME),  # the worker refuses it
        (
            f"{SMALL}group: other\n",
            f"{SAME}. This worker has another `group`, so events may be answered twice, or elsewhere",
        ),
        (
            f"{SMALL}group: other\ndelivery: exactly_once\n",
            f"{SAME}. This worker has another `group`, `delivery`, so events may be answered twice, or elsewhere",
        ),
    ],
)
def test_changed_file_is_told_once_with_what_it_means(tmp_path: Path, text: str, end: str) -> None:
    pipeline = load(tmp_path, SMALL)
    change = FileChange(pipeline, {})
    assert change.said(0) is None
    pipeline.path.write_text(text)
    told = change.said(1)
    assert told is not None
    assert told.startswith(f"{pipeline.path.name} has changed: worker 1 starts with what it says now")
    assert told.endswith(end)
    assert change.said(2) is None


def test_file_that_was_saved_since_a_workers_start_may_have_been_unfinished_then(tmp_path: Path) -> None:
    pipeline = load(tmp_path, SMALL)
    change = FileChange(pipeline, {})
    change.said(0)
    assert not change.may_be_half_saved(0)
    pipeline.path.write_text(SMALL[: len(SMALL) // 2])
    os.utime(pipeline.path, ns=(0, 0))
    assert change.may_be_half_saved(0)
    change.said(1)
    assert change.may_be_half_saved(1), "it can't be read"
    pipeline.path.unlink()
    assert change.may_be_half_saved(1)
    change.said(2)
    pipeline.path.write_text(SMALL)
    os.utime(pipeline.path, ns=(0, 1))  # the clock of file systems has steps of milliseconds
    assert change.may_be_half_saved(0), "it may have read the file between the two steps"
    assert change.may_be_half_saved(2)
    change.said(3)
    assert not change.may_be_half_saved(3)
