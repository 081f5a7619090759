"""The name of autopilot's consumer group."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.pipeline.pipeline import Pipeline


def group_of(pipeline: Pipeline) -> str:
    """The group that all autopilots of a pipeline join. One of them decides."""
    return f"{pipeline.name}-autopilot"
