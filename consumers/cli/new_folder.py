"""Creates a folder for the files that a command writes."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from millstream.consumers.errors import WorkerError


@contextmanager
def new_folder(folder: Path) -> Iterator[None]:
    """Create the folder; the body fills it. If that fails, what is in it is removed.

    Raises:
        WorkerError: the folder isn't empty, or can't be created or filled.
    """
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            found = "a folder that isn't empty" if folder.is_dir() else "a file"
            raise WorkerError(f"{folder}: expected a new or empty folder, found {found}. Choose another name.")
        was_there = folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        try:
            yield
        except BaseException:
            with suppress(OSError):  # what made the body fail is what to tell
                _empty(folder)
                if not was_there:
                    folder.rmdir()
            raise
    except OSError as error:
        raise WorkerError(f"{folder}: the folder can't be created: {_why(error)}. Choose another place.") from None


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _why(error: OSError) -> str:
    """The cause. `shutil.copytree` lists an error for each file; the first one is enough."""
    if isinstance(error, shutil.Error) and isinstance(error.args[0], list):
        _source, _target, why = error.args[0][0]
        return str(why)
    return error.strerror or str(error)
