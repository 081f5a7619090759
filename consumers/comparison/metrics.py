"""Every metric of the comparison job."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge

from millstream.consumers.observability.metrics import Metric, markdown
from millstream.consumers.observability.seldom import SeldomWarnings

_PAIR = ("primary", "shadow")

READ = Metric("millstream_comparison_records_total", "counter", "Records read: comparisons, labels.", ("what",))
LEFT_OUT = Metric(
    "millstream_comparison_left_out_total",
    "counter",
    "Records that don't count: undecodable (no comparison), unknown_pair (comparison of models that the pipeline file does not "
    "name), bad_labels (no label), late (comparison of a closed window, or summary of a window beyond those that are kept), "
    "ahead (comparison of more than 5 minutes ahead of the clock), unknown_labels (no comparison came for the label), "
    "repeated_labels (too many labels of the same events), damaged (record of the job's own topics that the job did not write), "
    "bad_batch (in a batch that decompresses to more than 64 MiB), too_large (summary of a window that no record can hold), "
    "internal_error (the job raised an unexpected error on them: its log has the traceback).",
    ("reason",),
)
LAG = Metric("millstream_comparison_lag_records", "gauge", "Records not yet processed.", ("topic", "partition"))
FITTING_SHARE = Metric(
    "millstream_comparison_fitting_share",
    "gauge",
    "Share of what is compared now that the job could take; 1 while it keeps up.",
)
TICK_SECONDS = Metric("millstream_comparison_update_seconds", "gauge", "How long the last update of the results took.")
RETRIES = Metric("millstream_comparison_retries_total", "counter", "Waits because schemas were away.")
RESULT = Metric(
    "millstream_evaluation",
    "gauge",
    "Newest window with an event, by figure of the evaluation: agreement, psi, primary_auc, shadow_auc, ...",
    (*_PAIR, "figure"),
)
WINDOW = Metric(
    "millstream_evaluation_window_start_seconds",
    "gauge",
    "Start of that window, seconds since the epoch.",
    _PAIR,
)

ALL = (READ, LEFT_OUT, LAG, FITTING_SHARE, TICK_SECONDS, RETRIES, RESULT, WINDOW)
REASONS = (
    "undecodable",
    "unknown_pair",
    "bad_labels",
    "late",
    "ahead",
    "unknown_labels",
    "repeated_labels",
    "damaged",
    "bad_batch",
    "too_large",
)


class ComparisonMetrics:
    """The metrics of one process, in a registry of their own."""

    def __init__(self, pipeline: str) -> None:
        self.registry = CollectorRegistry()
        self._pipeline = pipeline
        self._warnings = SeldomWarnings()
        self._families: dict[str, Any] = {
            metric.name: (Counter if metric.kind == "counter" else Gauge)(
                metric.name, metric.help, ("pipeline", *metric.labels), registry=self.registry
            )
            for metric in ALL
        }
        # A series that appears with its first count hides that count from `rate`.
        for reason in REASONS:
            self.count(LEFT_OUT, 0, reason)
        for what in ("comparisons", "labels"):
            self.count(READ, 0, what)
        self.count(RETRIES, 0)
        self.set(FITTING_SHARE, 1)

    def count(self, metric: Metric, by: float = 1, *labels: str) -> None:
        """Add to a counter."""
        self._families[metric.name].labels(self._pipeline, *labels).inc(by)

    def leave_out(self, count: int, reason: str, example: object = None) -> None:
        """Count records that don't count; warn of them, at most once a minute, where there is an example."""
        self.count(LEFT_OUT, count, reason)
        if count and example is not None:
            self._warnings.warn(f"records don't count ({reason})", count, example)

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        """Set a gauge."""
        self._families[metric.name].labels(self._pipeline, *labels).set(value)

    def forget(self, metric: Metric) -> None:
        """Drop all values of a gauge, such as the lags before a rebalance."""
        self._families[metric.name].clear()


def metrics_markdown() -> str:
    """The table of docs/comparison.md."""
    return markdown(ALL)
