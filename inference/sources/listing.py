"""Lists the folders in a folder, which may be on a slow network drive."""

import os
from collections.abc import Iterator
from pathlib import Path

from millstream.inference.sources.progress import Progress


def folders_in(folder: Path, progress: Progress) -> Iterator[str]:
    """The names of the folders in a folder; each entry is progress. Raises OSError.

    Most file systems list entries with their kinds. To ask for each one costs a network drive a request.
    """
    with os.scandir(folder) as entries:
        for entry in entries:
            progress.add(0)
            # A link that leads nowhere, or to itself, is no folder. `DirEntry` raises for some of these.
            if Path(entry).is_dir() if entry.is_symlink() else entry.is_dir():
                yield entry.name
