"""Gauges that several models of a pipeline share: two of them may serve the same version, or fail for the same reason."""

from collections import Counter
from typing import Protocol

from millstream.consumers.observability.metric import Metric


class Series(Protocol):
    """What shows the served versions, see `Metrics`."""

    def count(self, metric: Metric, by: float = 1, *labels: str) -> None:
        """Add to a counter."""

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        """Set a gauge."""

    def forget(self, metric: Metric, *labels: str) -> None:
        """Drop a gauge's value with these labels."""


class SharedSeries:
    """A gauge's value stays until it was dropped as often as it was set. One thread at a time calls it."""

    def __init__(self, metrics: Series) -> None:
        self._metrics = metrics
        self._holders: Counter[tuple[str, ...]] = Counter()

    def count(self, metric: Metric, by: float = 1, *labels: str) -> None:
        """See Series."""
        self._metrics.count(metric, by, *labels)

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        """See Series. Call `forget` once for each call."""
        self._holders[metric.name, *labels] += 1
        self._metrics.set(metric, value, *labels)

    def forget(self, metric: Metric, *labels: str) -> None:
        """See Series."""
        self._holders[metric.name, *labels] -= 1
        if not self._holders[metric.name, *labels]:
            del self._holders[metric.name, *labels]
            self._metrics.forget(metric, *labels)
