"""The names of the comparison job's consumer group and of its own topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.pipeline.pipeline import Pipeline


def app_name(pipeline: Pipeline) -> str:
    """The job's consumer group; also the prefix of its topics' names."""
    return f"{pipeline.group_id}-comparison"


def own_topics(pipeline: Pipeline) -> dict[str, dict[str, str]]:
    """The job's own topics and their settings.

    The job creates them before it starts Faust. If Faust creates a topic itself, it may not know the topic yet when it assigns
    partitions. Then no process reads the topic until the next rebalance (faust-streaming 0.15.3).
    """
    name = app_name(pipeline)
    compact = {"cleanup.policy": "compact"}
    return {
        f"{name}-labels": {},
        f"{name}-parts": {},
        f"{name}-chunks-changelog": compact,
        f"{name}-parts-changelog": compact,
    }
