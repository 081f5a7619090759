"""Finds the folder that keeps the programs which Millstream fetches: a broker, a model server."""

import os
from pathlib import Path


def cache_folder(given: Path | None) -> Path:
    """The folder that the option `--cache` gives; by default, the user's cache folder for Millstream."""
    folder = given or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "millstream"
    return folder.absolute()
