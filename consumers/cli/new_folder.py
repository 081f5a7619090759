"""Creates a folder for the files that a command writes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from millstream.consumers.errors import WorkerError


@contextmanager
def new_folder(folder: Path) -> Iterator[None]:
    """Create the folder; the body fills it. Raises WorkerError if it isn't empty, or can't be created or filled."""
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            found = "a folder that isn't empty" if folder.is_dir() else "a file"
            raise WorkerError(f"{folder}: expected a new or empty folder, found {found}. Choose another name.")
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        why = error.strerror or "not all files could be written"
        raise WorkerError(f"{folder}: the folder can't be created: {why}. Choose another place.") from None
