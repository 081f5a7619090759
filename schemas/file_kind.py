"""Recognises a file that was named in place of another one."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING

from millstream.schemas.yaml_file import MAX_BYTES, NodeReader, YamlError, composed, decoded

if TYPE_CHECKING:
    from pathlib import Path

_MODEL_ENDINGS = {".onnx", ".pt2", ".pt", ".py", ".pkl", ".pickle", ".joblib", ".pth", ".safetensors", ".keras", ".cbm"}
_OF_PIPELINE = {"name", "input", "output", "model", "models"}
"""Keys of a pipeline file. An event has hardly more than one of them."""
_YAML = {".yaml", ".yml"}
GZIP_HEAD = b"\x1f\x8b"


class FileKind(StrEnum):
    """What a file is, in words for messages."""

    PIPELINE = "a pipeline file"
    CONFIG = "the config.yaml of a model"
    MODEL = "a model"
    EVENTS = "events as JSON"
    CSV = "a CSV file"
    GZIP = "a file that is compressed with gzip"


def file_kind(path: Path) -> FileKind | None:
    """What the file plainly is; None: something else, or it isn't there or can't be read. It may take long with large YAML."""
    try:
        if not path.is_file():  # opening a named pipe would block forever
            return None
        if is_model(path):
            return FileKind.MODEL
        with path.open("rb") as file:
            head = file.read(MAX_BYTES)
    except OSError:
        return None
    if head.startswith(GZIP_HEAD):
        return FileKind.GZIP
    if path.suffix.lower() == ".csv":
        return FileKind.CSV
    return _kind_of_text(head, is_yaml=path.suffix in _YAML)


def _kind_of_text(head: bytes, *, is_yaml: bool) -> FileKind | None:
    """See `file_kind`. `head`: the beginning of the file."""
    if not is_yaml and (event := _first_object(head)) is not None:
        # Settings may be JSON, which is YAML.
        return settings_kind(event) or (None if len(event.keys() & _OF_PIPELINE) > 1 else FileKind.EVENTS)
    try:
        root = composed(decoded(head))
        return None if root is None else settings_kind(NodeReader().read(root))
    except YamlError:
        return None


def is_model(path: Path) -> bool:
    """Whether there is a file that ends as models do."""
    return path.suffix.lower() in _MODEL_ENDINGS and path.is_file()


def settings_kind(settings: object) -> FileKind | None:
    """What file these settings are plainly of; None: another one, or it isn't plain."""
    if not isinstance(settings, dict):
        return None
    if "kafka" in settings:
        return FileKind.PIPELINE
    of_config = any(isinstance(settings.get(name), list | tuple) for name in ("inputs", "outputs"))
    return FileKind.CONFIG if of_config and not settings.keys() & {"input", "output", "model", "models"} else None


def _first_object(text: bytes) -> dict[str, object] | None:
    """The JSON object with which the text begins, or the first one of its list; None: there is none."""
    try:
        value, _ = json.JSONDecoder().raw_decode(text.decode(errors="replace").lstrip())
    except (ValueError, RecursionError):
        return None
    first = value[0] if isinstance(value, list) and value else value
    return first if isinstance(first, dict) else None
