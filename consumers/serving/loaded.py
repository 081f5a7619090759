"""A version that is loaded."""

from dataclasses import dataclass
from pathlib import Path

from millstream.consumers.serving.wanted_now import Target
from millstream.inference.executors.opened import OpenedModel
from millstream.inference.repository import ModelVersion


@dataclass(frozen=True, slots=True)
class Loaded:
    """A version that is loaded."""

    target: Target | None  # None: the version at the start, whose content isn't known yet
    model: ModelVersion
    opened: OpenedModel
    folder: Path | None  # that the source keeps for this process; None: it need not
