"""Results on their way to the writing stage: those of a quick model together, since each handing-over wakes a thread."""

import time

from millstream.consumers.events import BatchResult, ResultQueue

# Seconds for which a result is kept for those right behind it. Where a call of the model takes longer it is handed over at once.
MAX_DELAY = 0.006


class ResultBuffer:
    """Gives results to `answers`. One thread keeps and flushes; others may pass results on."""

    def __init__(self, answers: ResultQueue) -> None:
        self._answers = answers
        self._kept: list[BatchResult] = []
        self._kept_since = 0.0  # seconds on the monotonic clock

    def keep(self, answered: BatchResult) -> None:
        """Hand a result over soon: with those that come within 6 ms, or at once where the model took longer."""
        now = time.monotonic()
        if not self._kept:
            self._kept_since = now
        self._kept.append(answered)
        if now - self._kept_since >= MAX_DELAY or answered.seconds >= MAX_DELAY:
            self.flush()

    def flush(self) -> None:
        """Hand over what was kept."""
        if self._kept:
            self._answers.put(self._kept)
            self._kept = []

    def pass_on(self, answered: BatchResult) -> None:
        """Hand a result over at once."""
        self._answers.put([answered])
