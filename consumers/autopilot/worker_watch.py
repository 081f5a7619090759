"""Tells whether any worker of the pipeline runs: by the members of its consumer group."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from millstream.topics.group import is_empty

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.pipeline.pipeline import Pipeline

ASK_EVERY: Final = 10.0  # seconds between two questions to the broker


class WorkerWatch:
    """See the module. For one thread."""

    def __init__(self, pipeline: Pipeline, clock: Callable[[], float] = time.monotonic) -> None:
        """Args:
        pipeline: whose workers.
        clock: seconds.
        """
        self._client = pipeline.client_config()
        self._group = pipeline.group_id
        self._clock = clock
        self._due = float("-inf")
        self._is_empty = False

    def absence(self) -> str:
        """That no worker runs, as a sentence without a full stop; empty: one runs, or the broker doesn't say."""
        if self._clock() >= self._due:
            self._is_empty = is_empty(self._client, self._group)
            self._due = self._clock() + ASK_EVERY
        if not self._is_empty:
            return ""
        return f"no worker runs: the consumer group {self._group} has no member. Start workers, or look why they don't join"
