"""Every metric of autopilot."""

from __future__ import annotations

from typing import Final

from millstream.consumers.observability.metric import Metric
from millstream.consumers.observability.metrics import markdown
from millstream.consumers.observability.pipeline_metrics import PipelineMetrics

ACTIVE = Metric(
    "millstream_autopilot_active", "gauge", "1 while this process decides, 0 while it stands by for another one."
)
LOOKS = Metric(
    "millstream_autopilot_looks_total",
    "counter",
    "Looks at the rollout: hold, change (written), advice (mode advise), lost (somebody else changed it meanwhile), failed "
    "(it couldn't be evaluated or written).",
    ("result",),
)
CHANGES = Metric(
    "millstream_autopilot_changes_total", "counter", "Changes of the rollout by autopilot, by action.", ("action",)
)
HOLDING = Metric(
    "millstream_autopilot_holding_seconds",
    "gauge",
    "How long the rollout has been held for this reason. The label leaves out the reason's numbers; `rollout status` shows them. "
    "No series: it is not held, or no rollout is on its way.",
    ("reason",),
)
FAILING = Metric(
    "millstream_autopilot_failing",
    "gauge",
    "1 while the rollout can't be evaluated, or a decision can't be written. A bad version then keeps its share.",
)
REFUSED = Metric(
    "millstream_autopilot_candidate_refused",
    "gauge",
    "1 while a version that should start can't: it does not fit or can't be loaded, or the version of `rollout.candidate` is "
    "not known.",
)
STEP = Metric(
    "millstream_autopilot_step_seconds", "gauge", "How long the current step has taken; 0: no rollout is on its way."
)
LABELS = Metric("millstream_autopilot_labels", "gauge", "Matured labels of the step, of the version that has fewer.")
UNMATURED = Metric(
    "millstream_autopilot_unmatured_share", "gauge", "Share of the step's events that are not mature, 0 to 1."
)
BEHIND = Metric("millstream_autopilot_behind_records", "gauge", "Records of the step that are not read yet.")
FIGURE = Metric(
    "millstream_autopilot_figure",
    "gauge",
    "Figures of the step by variant, such as errors, dead_letters, latency_p95 (ms), accuracy and labelled. No series: no "
    "rollout is on its way, or the figure is not known.",
    ("variant", "metric"),
)
VERDICT = Metric(
    "millstream_autopilot_verdict",
    "gauge",
    "What the step's evaluation says of a metric: 1 it has passed, 0 it is not decided, -1 it is breached. A breach of quality "
    "is 0 while the comparison is invalid: it does not count.",
    ("variant", "metric"),
)
WEBHOOKS = Metric(
    "millstream_autopilot_webhooks_total",
    "counter",
    "Changes sent to the webhook: sent, failed (given up).",
    ("result",),
)

ALL: Final = (
    ACTIVE,
    LOOKS,
    CHANGES,
    HOLDING,
    FAILING,
    REFUSED,
    STEP,
    LABELS,
    UNMATURED,
    BEHIND,
    FIGURE,
    VERDICT,
    WEBHOOKS,
)
RESULTS: Final = ("hold", "change", "advice", "lost", "failed")
_ACTIONS: Final = (
    *("start", "restart", "step", "watch", "promote", "conclude"),
    *("rollback", "pause", "await_approval", "inconclusive", "set"),
)


class AutopilotMetrics(PipelineMetrics):
    """The metrics of one process, in a registry of their own."""

    def __init__(self, pipeline: str) -> None:
        super().__init__(pipeline, ALL)
        # Create each series with 0: if a series started at its first count, `rate` would miss that count.
        for metric, values in ((LOOKS, RESULTS), (CHANGES, _ACTIONS), (WEBHOOKS, ("sent", "failed"))):
            for value in values:
                self.count(metric, 0, value)
        for metric in ALL:
            if metric.kind == "gauge" and not metric.labels:
                self.set(metric, 0)


def metrics_markdown() -> str:
    """The table of docs/rollouts.md."""
    return markdown(ALL)
