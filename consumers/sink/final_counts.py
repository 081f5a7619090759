"""Counts results once they are final, so that no counter has those of an aborted transaction."""

from collections import Counter

from millstream.consumers.observability.metric import Metric
from millstream.consumers.observability.metrics import Metrics


class FinalCounts:
    """Holds counts back until the next checkpoint. One thread calls it."""

    def __init__(self, metrics: Metrics) -> None:
        """Args:
        metrics: where to count.
        """
        self._metrics = metrics
        self._held: Counter[tuple[Metric, tuple[str, ...]]] = Counter()

    def add(self, metric: Metric, by: int, *labels: str) -> None:
        """Add to a counter at the next checkpoint."""
        self._held[metric, labels] += by

    def publish(self) -> None:
        """Add what is held back: its results are final."""
        for (metric, labels), by in self._held.items():
            self._metrics.count(metric, by, *labels)
        self._held.clear()

    def drop(self) -> None:
        """Forget what is held back: its results were taken back."""
        self._held.clear()
