"""Every metric of the comparison job."""

from __future__ import annotations

from millstream.consumers.observability.metric import Metric
from millstream.consumers.observability.metrics import markdown
from millstream.consumers.observability.pipeline_metrics import PipelineMetrics
from millstream.consumers.observability.seldom import Kind, SeldomWarnings

_PAIR = ("primary", "shadow")

READ = Metric("millstream_comparison_records_total", "counter", "Records read: comparisons, labels.", ("what",))
LEFT_OUT = Metric(
    "millstream_comparison_left_out_total",
    "counter",
    "Records left out: undecodable (not a comparison), unknown_pair (comparison of models that the pipeline file doesn't name), "
    "bad_labels (not a label), late (comparison of a closed window, or summary of a window that is too old to be kept), ahead "
    "(comparison of an event more than 5 minutes ahead of the clock), unknown_labels (label without a comparison), "
    "repeated_labels (another label of an event that has one, dropped because there is no more room for labels), damaged (record "
    "of the job's own topics that the job can't use), bad_batch (in a record batch that can't be read, or decompresses to more "
    "than 64 MiB), too_large (summary of a window that doesn't fit into a record), undelivered (result or summary that Kafka "
    "refuses), internal_error (the job raised an unexpected error: its log has the traceback). What to do: `millstream docs "
    "comparison#records-that-are-left-out`.",
    ("reason",),
)
LAG = Metric("millstream_comparison_lag_records", "gauge", "Records not yet processed.", ("topic", "partition"))
FITTING_SHARE = Metric(
    "millstream_comparison_fitting_share",
    "gauge",
    "Share of the arriving comparisons that the job can process; 1 while it keeps up.",
)
TICK_SECONDS = Metric(
    "millstream_comparison_update_seconds",
    "gauge",
    "How long the last update of the results took, including the pauses that it makes for the job's other work.",
)
RETRIES = Metric("millstream_comparison_retries_total", "counter", "Waits because schemas couldn't be loaded.")
RESULT = Metric(
    "millstream_evaluation",
    "gauge",
    "Figures of the newest window with an event: agreement, psi, primary_auc, shadow_auc, ...",
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
    "undelivered",
)


class ComparisonMetrics(PipelineMetrics):
    """The metrics of one process, in a registry of their own."""

    def __init__(self, pipeline: str) -> None:
        super().__init__(pipeline, ALL)
        self.warnings = SeldomWarnings()  # of records that are left out
        # Create each series with 0: if a series started at its first count, `rate` would miss that count.
        for reason in REASONS:
            self.count(LEFT_OUT, 0, reason)
        for what in ("comparisons", "labels"):
            self.count(READ, 0, what)
        self.count(RETRIES, 0)
        self.set(FITTING_SHARE, 1)

    def leave_out(self, count: int, reason: str, example: object = None) -> None:
        """Count records that are left out. If there is an example, log a warning, at most once a minute."""
        self.count(LEFT_OUT, count, reason)
        if count and example is not None:
            self.warnings.warn(Kind(f"record left out ({reason})", f"records left out ({reason})"), count, example)


def metrics_markdown() -> str:
    """The table of docs/comparison.md."""
    return markdown(ALL)
