"""Finds the deletions among changes of a database, which have no row that a model could take features from."""

from collections.abc import Mapping, Sequence
from typing import Any


def without_deletions(events: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """The events without those that Debezium writes for a deleted row; all of them if nothing else is there."""
    return [event for event in events if not _is_deletion(event.get("payload", event))] or events


def _is_deletion(change: object) -> bool:
    return (
        isinstance(change, Mapping) and change.get("op") == "d" and "before" in change and change.get("after") is None
    )
