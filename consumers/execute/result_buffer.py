"""Passes results on to the write thread. The results of a fast model go together, because each message wakes that thread."""

import time
from collections.abc import Sequence

from millstream.consumers.events import BatchResult, ResultQueue

# Seconds for which a result is kept back, so that the next ones join it. If the model call took longer, it goes on at once.
MAX_DELAY = 0.006


class ResultBuffer:
    """Gives results to `answers`. One thread calls `keep` and `flush`; other threads may call `pass_on`."""

    def __init__(self, answers: ResultQueue) -> None:
        self._answers = answers
        self._kept: list[BatchResult] = []
        self._kept_since = 0.0  # seconds on the monotonic clock

    def keep(self, answered: BatchResult) -> None:
        """Pass a result on together with those of the next 6 ms; at once if the model call took longer."""
        now = time.monotonic()
        if not self._kept:
            self._kept_since = now
        self._kept.append(answered)
        if now - self._kept_since >= MAX_DELAY or answered.seconds >= MAX_DELAY:
            self.flush()

    def flush(self) -> None:
        """Pass on all results that were kept back."""
        if self._kept:
            self._answers.put(self._kept)
            self._kept = []

    def pass_on(self, answered: Sequence[BatchResult]) -> None:
        """Pass results on at once."""
        self._answers.put(answered)
