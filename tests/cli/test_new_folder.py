"""A folder that can't be filled, for example on a full disk: the cause is told, and the next try finds the place free."""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from millstream.consumers.cli.new_folder import new_folder
from millstream.consumers.errors import WorkerError


def full(*_args: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("was_there", [False, True])
def test_folder_that_could_not_be_filled_is_as_it_was(tmp_path: Path, *, was_there: bool) -> None:
    folder = tmp_path / "new"
    if was_there:
        folder.mkdir()
    told = r"new: the folder can't be created: No space left on device\. Choose"
    with pytest.raises(WorkerError, match=told), new_folder(folder):
        (folder / "models" / "1").mkdir(parents=True)
        (folder / "models" / "1" / "model.onnx").write_text("a part")
        (folder / "pipeline.yaml").write_text("a part")
        full()
    assert folder.exists() == was_there
    assert not was_there or list(folder.iterdir()) == []


def test_cause_is_told_where_a_tree_is_copied(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "file").write_text("text")
    with pytest.raises(WorkerError, match="No space left on device"), new_folder(tmp_path / "new"):
        shutil.copytree(source, tmp_path / "new" / "part", copy_function=full)
