"""What the comparison job calls itself and its own topics in Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.pipeline.pipeline import Pipeline


def app_name(pipeline: Pipeline) -> str:
    """The job's consumer group, and the beginning of its topics' names."""
    return f"{pipeline.group_id}-comparison"


def own_topics(pipeline: Pipeline) -> dict[str, dict[str, str]]:
    """The job's own topics and their settings.

    They are made before Faust starts: one that it made itself a moment ago it may not know yet when it assigns partitions, and
    then nobody reads it until the next rebalance (faust-streaming 0.15.3).
    """
    name = app_name(pipeline)
    compact = {"cleanup.policy": "compact"}
    return {
        f"{name}-labels": {},
        f"{name}-parts": {},
        f"{name}-chunks-changelog": compact,
        f"{name}-parts-changelog": compact,
    }
