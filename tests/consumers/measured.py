"""What a part of a worker counted, for tests that look at it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.consumers.observability.metrics import Metrics

if TYPE_CHECKING:
    from millstream.consumers.observability.metric import Metric


def measured(metrics: Metrics, metric: Metric, suffix: str = "", **labels: str) -> float | None:
    """A metric of pipeline `p` as Prometheus reads it, or one of its series, such as `_sum`; None: never set."""
    return metrics.registry.get_sample_value(metric.name + suffix, {"pipeline": "p", **labels})


class Measured:
    """Something that counts in metrics of its own."""

    def __init__(self) -> None:
        self.metrics = Metrics("p")

    def value(self, metric: Metric, suffix: str = "", **labels: str) -> float | None:
        """See `measured`."""
        return measured(self.metrics, metric, suffix, **labels)
