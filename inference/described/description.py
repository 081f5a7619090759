"""What describes a version: its config.yaml, or another system's file."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millstream.inference.config_file import ConfigFile


@dataclass(frozen=True, slots=True)
class Description:
    """The content of a config.yaml, or what stands for it."""

    written: ConfigFile
    file: Path | None = None  # the model's file; None: the one with a usual name
    max_events: int | None = None  # of a batch; None: no limit
    max_wait: float | None = (
        None  # seconds that a batch waits for more events, unless the pipeline file says it; None: unsaid
    )


def array_of(name: str) -> str:
    """The path of an event's array of this name. The brackets are needed in JSON without a schema."""
    return f"{name}[]"


def as_config(path: Path, data: Mapping[str, Any]) -> ConfigFile:
    """What a config.yaml would say. All of it stands in line 1 for messages: the file's own lines say it in other words."""
    return ConfigFile(path, dict(data), {(): 1})
