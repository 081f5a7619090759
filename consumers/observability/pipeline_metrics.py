"""The metrics of a program that runs beside the workers, in a registry of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.consumers.observability.metric import Metric


class PipelineMetrics:
    """Counters and gauges of one process. Each has the label `pipeline` before its own."""

    def __init__(self, pipeline: str, metrics: Iterable[Metric]) -> None:
        self.registry = CollectorRegistry()
        self._pipeline = pipeline
        self._families: dict[str, Any] = {
            metric.name: (Counter if metric.kind == "counter" else Gauge)(
                metric.name, metric.help, ("pipeline", *metric.labels), registry=self.registry
            )
            for metric in metrics
        }

    def count(self, metric: Metric, by: float = 1, *labels: str) -> None:
        """Add to a counter."""
        self._families[metric.name].labels(self._pipeline, *labels).inc(by)

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        """Set a gauge."""
        self._families[metric.name].labels(self._pipeline, *labels).set(value)

    def forget(self, metric: Metric) -> None:
        """Delete all values of a gauge, such as the lags before a rebalance."""
        self._families[metric.name].clear()
