"""A replay's folder: what counts after a kill at each step of a checkpoint."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest

from millstream.consumers.errors import WorkerError
from millstream.consumers.replay.answers import row_type
from millstream.consumers.replay.folder import About, Progress, ReplayFolder, left

if TYPE_CHECKING:
    from pathlib import Path

A, B = ("in", 0), ("in", 1)
ABOUT = About("p", "m", 2, 0, 10, "out", "p", {"output": "p"}, "group", {A: (5, 20), B: (0, 7)})


def rows(*ids: int) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    found = np.zeros(len(ids), row_type(0))
    found["id"] = ids
    return found


def part(**offsets: int) -> Progress:
    return Progress(
        {{"a": A, "b": B}[name]: offset for name, offset in offsets.items()}, 2, Counter(unfit=1), {"unfit": "x"}
    )


@pytest.fixture
def folder(tmp_path: Path) -> ReplayFolder:
    found = ReplayFolder(tmp_path)
    found.write_about(ABOUT)
    return found


def test_checkpoints_add_up(folder: ReplayFolder) -> None:
    for number, (ids, done) in enumerate((((1, 2), part(a=9)), ((3, 4), part(a=12, b=7)))):
        folder.write_pending(rows(*ids), done)
        folder.keep_pending(number)
    progress = folder.progress()
    assert (progress.answered, progress.rejected, progress.examples) == (4, Counter(unfit=2), {"unfit": "x"})
    assert [part["id"].tolist() for part in folder.rows()] == [[1, 2], [3, 4]]
    assert folder.read_about() == ABOUT
    assert left(ABOUT, progress) == {A: (12, 20), B: (7, 7)}


@pytest.mark.parametrize(("committed", "counts"), [({A: 9}, True), ({A: 10}, True), ({A: 8}, False), ({}, False)])
def test_pending_checkpoint_counts_if_its_transaction_was_committed(
    folder: ReplayFolder, committed: dict[tuple[str, int], int], counts: bool
) -> None:
    folder.write_pending(rows(1), part(a=9))
    assert folder.progress().answered == 0
    folder.settle(committed)
    assert folder.pending() is None
    assert left(ABOUT, folder.progress())[A] == ((9, 20) if counts else (5, 20))
    folder.settle({A: 100})  # nothing is pending any more
    assert folder.progress().chunks == int(counts)


def test_half_a_file_does_not_count(folder: ReplayFolder) -> None:
    (folder.path / "pending.npz.tmp").write_bytes(b"half")
    folder.settle({A: 100})
    assert folder.progress() == Progress()


def test_one_process_uses_a_folder_at_a_time(tmp_path: Path) -> None:
    with ReplayFolder(tmp_path).locked():
        again = ReplayFolder(tmp_path).locked()
        with pytest.raises(WorkerError, match="the same replay runs already"):
            again.__enter__()
    with ReplayFolder(tmp_path).locked():
        pass


def test_begun_anew_nothing_is_left(folder: ReplayFolder) -> None:
    folder.write_pending(rows(1), part(a=9))
    folder.keep_pending(0)
    folder.note_done()
    folder.clear()
    assert (folder.read_about(), folder.is_done, folder.progress()) == (None, False, Progress())


def test_damaged_description_is_told(folder: ReplayFolder) -> None:
    (folder.path / "replay.json").write_text("[]")
    with pytest.raises(WorkerError, match="no description of a replay"):
        folder.read_about()
