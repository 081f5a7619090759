"""Files that survive a failure of the machine whole, or not at all."""

import json
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def read_record(path: Path) -> dict[str, Any]:
    """A record that `write_record` wrote; empty: there is none, or something else damaged it."""
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Replace a record at once. Raises OSError."""
    new = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with new.open("w", encoding="utf-8") as file:
            json.dump(record, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def sync_tree(folder: Path) -> None:
    """Wait until all files are on the disk: a rename may survive a failure of the machine that the content doesn't."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        elif path.is_dir():
            sync_folder(path)
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Wait until the names in the folder are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
