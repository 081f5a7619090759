"""Declares all metrics of a worker. `millstream metrics` lists them."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from prometheus_client import CollectorRegistry, Counter, Gauge

from millstream.consumers.observability.genai_metrics import (
    FIRST_TOKEN_SECONDS,
    OUTPUT_TOKEN_SECONDS,
    REQUEST_SECONDS,
    TOKEN_USAGE,
)
from millstream.consumers.observability.histogram import Histogram
from millstream.consumers.observability.metric import Metric

DURATION_BUCKETS = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    5,
    10,
    30,
    60,
)
LATENCY_BUCKETS = (
    0.001,
    0.002,
    0.003,
    0.005,
    0.0075,
    0.01,
    0.015,
    0.02,
    0.03,
    0.05,
    0.075,
    0.1,
    0.15,
    0.25,
    0.5,
    1,
    2.5,
    5,
    10,
    30,
    60,
    300,
    3600,
)
AGE_BUCKETS = (1, 5, 15, 60, 300, 900, 3600, 10_800, 43_200, 86_400, 259_200, 604_800, 2_592_000)
EVENT_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
RATIO_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1)
REASONS = (
    *("undecodable", "unknown_schema", "schema_incompatible"),
    *("unfit", "no_model", "model_rejected", "nan_output", "prediction_too_large"),
    *("crashed", "expired", "internal_error"),
)
"""Why an event becomes a dead letter."""
FILTERED = "filtered"
"""Why an event is skipped that `input.filter` leaves out."""


RECORDS_READ = Metric("millstream_records_read_total", "counter", "Records read from the input topics.", ("topic",))
TOMBSTONES = Metric("millstream_tombstones_total", "counter", "Records without a value, passed by.")
PREDICTIONS = Metric(
    "millstream_predictions_total",
    "counter",
    "Predictions written to the output topic.",
    ("model", "version", "variant"),
)
SERVING_MODEL = Metric(
    "millstream_serving_model",
    "gauge",
    "1 for each model version that answers the events read now. Of tenants' models, only the default one has a series.",
    ("model", "version"),
)
MODEL_RELOADS = Metric(
    "millstream_model_reloads_total",
    "counter",
    "Attempts to follow `latest`, an alias or a rollout: switched, loaded (a version of a rollout), or why the version isn't put "
    "to work (unavailable, repository, signature, load, warm_up).",
    ("result",),
)
MODEL_RELOAD_ERROR = Metric(
    "millstream_model_reload_error",
    "gauge",
    "1 while a wanted version is not served, with the reason and the error. No series otherwise.",
    ("model", "reason", "error"),
)
ROLLOUT_SHARE = Metric(
    "millstream_rollout_share",
    "gauge",
    "Share of the keys that each variant of the rollout (`rollout`) has in this worker, 0 to 1.",
    ("variant", "model", "version"),
)
ROLLOUT_LOADED = Metric(
    "millstream_rollout_loaded",
    "gauge",
    "1 for each variant of the rollout that this worker has loaded, 0 for one that it needs and hasn't.",
    ("variant", "model", "version"),
)
ROLLOUT_REVISION = Metric(
    "millstream_rollout_revision", "gauge", "Revision of the rollout that this worker routes by; 0: no rollout."
)
ROLLOUT_STATE = Metric(
    "millstream_rollout_state",
    "gauge",
    "1 for the state that the rollout has in this worker, such as running or rolled_back. No series: no rollout.",
    ("strategy", "state"),
)
ROLLOUT_FALLBACKS = Metric(
    "millstream_rollout_fallback_events_total",
    "counter",
    "Events of a variant that the baseline answered: not_loaded (the variant can't be loaded), outage (its executor failed).",
    ("variant", "reason"),
)
ROLLOUT_UNREADABLE = Metric(
    "millstream_rollout_control_unreadable",
    "gauge",
    "1 while the control topic of the rollout, or its newest record, can't be read: the worker keeps its last state.",
)
DEAD_LETTERS = Metric(
    "millstream_dead_letters_total", "counter", "Events written to the dead-letter topic.", ("reason",)
)
SKIPPED = Metric(
    "millstream_skipped_events_total",
    "counter",
    "Events of which nothing was written: filtered (`input.filter` leaves them out), expired (`on_error.skip`).",
    ("reason",),
)
REVOKED_DROPPED = Metric(
    "millstream_revoked_records_dropped_total",
    "counter",
    "Records dropped because their partition was revoked before they were written; its new owner reads them again.",
)
INTERNAL_ERRORS = Metric(
    "millstream_internal_errors_total",
    "counter",
    "Events on which a stage of the worker failed (a bug, or too little memory): decode, infer or encode. They are rejected as "
    "`internal_error`.",
    ("stage",),
)
INVALID_DEADLINES = Metric(
    "millstream_invalid_deadlines_total",
    "counter",
    "Events whose deadline header (`input.deadline_header`) is not a number of milliseconds; they have no deadline.",
)
MISSING_EVENT_TIMES = Metric(
    "millstream_missing_event_times_total",
    "counter",
    "Events whose time (the field of `input.event_time`) was absent or null, so that the record's timestamp is their time.",
)
MISSING_COSTS = Metric(
    "millstream_missing_costs_total",
    "counter",
    "Events whose cost (the field of `batch.cost`) was absent or null, so that their cost is 0.",
)
MISSING_INCLUDED = Metric(
    "millstream_missing_included_total",
    "counter",
    "Events in which a field of `output.include`, which no model reads, was absent or null, so that predictions have null.",
    ("field",),
)
MISSING_VALUES = Metric(
    "millstream_missing_values_total",
    "counter",
    "Events in which a field was absent or null, so that the model got the field's `missing`. Events that are read again "
    "count again.",
    ("model", "field"),
)
UNKNOWN_VALUES = Metric(
    "millstream_unknown_values_total",
    "counter",
    "Values of a field that are no entry of its vocabulary, so that the model got `unknown`.",
    ("model", "field"),
)
BATCHES = Metric(
    "millstream_batches_total", "counter", "Micro-batches closed: by size, bytes, cost, time or drain.", ("reason",)
)
BATCH_EVENTS = Metric("millstream_batch_events", "histogram", "Events in a micro-batch.", (), EVENT_BUCKETS)
BATCH_FILL = Metric(
    "millstream_batch_fill_ratio", "histogram", "Events in a micro-batch over `batch.max_events`.", (), RATIO_BUCKETS
)
STAGE_SECONDS = Metric(
    "millstream_stage_seconds",
    "histogram",
    "Time in a stage, per poll, micro-batch or micro-batches written together: poll (until records came), decode (with lookup), "
    "lookup (of features, for each look-up), queue (oldest event's wait for its batch to run), infer, encode, produce, commit "
    "(until acknowledged).",
    ("stage",),
    DURATION_BUCKETS,
)
END_TO_END = Metric(
    "millstream_end_to_end_seconds",
    "histogram",
    "From the event's record timestamp until its prediction was handed over; with exactly_once until it could be read.",
    (),
    LATENCY_BUCKETS,
)
FEATURE_LOOKUPS = Metric(
    "millstream_feature_lookups_total",
    "counter",
    "Events whose features were looked up: found, missing (the store has no entry, or a part of the key is null), stale (older "
    "than `max_age`), invalid (the entry or the key can't be read), unavailable (the store was away, with "
    "`on_outage: missing`).",
    ("lookup", "outcome"),
)
FEATURE_AGE = Metric(
    "millstream_feature_age_seconds",
    "histogram",
    "Age of the features that were found, when they were looked up, one value for each event.",
    ("lookup",),
    AGE_BUCKETS,
)
TRANSACTIONS = Metric(
    "millstream_transactions_total", "counter", "Transactions ended (exactly once): committed or aborted.", ("outcome",)
)
COMPARISONS = Metric(
    "millstream_comparisons_total",
    "counter",
    "Comparisons that the shadows made. One that Kafka did not take counts here, and as undelivered in "
    "`millstream_shadow_skipped_events_total`.",
    ("shadow",),
)
SHADOW_FAILED = Metric(
    "millstream_shadow_failed_events_total",
    "counter",
    "Of the compared events, those on which the shadow failed: the comparison has its error in place of its outputs.",
    ("shadow",),
)
SHADOW_SKIPPED = Metric(
    "millstream_shadow_skipped_events_total",
    "counter",
    "Events that a shadow did not answer (estimated by its share): shed (the worker was busy, or the shadow too slow), "
    "uncommitted, undelivered, ended (the worker did), failed.",
    ("shadow", "reason"),
)
SHADOW_SECONDS = Metric(
    "millstream_shadow_seconds", "histogram", "Time that the shadows took for a micro-batch.", (), DURATION_BUCKETS
)
CASCADE_EVENTS = Metric(
    "millstream_cascade_events_total", "counter", "Events that a cascade (`models.cascade`) answered."
)
ESCALATED = Metric(
    "millstream_cascade_escalated_total", "counter", "Of these events, those of which the first model was not sure."
)
TENANT_MODELS = Metric("millstream_tenant_models", "gauge", "Models of tenants (`models.tenants`) that are loaded.")
TENANT_MODEL_BYTES = Metric(
    "millstream_tenant_model_bytes",
    "gauge",
    "Estimated memory of the loaded models; `models.tenants.memory` bounds it.",
)
TENANT_LOADS = Metric(
    "millstream_tenant_model_loads_total",
    "counter",
    "Loads of tenants' models: loaded, or failed (the tenant's events become dead letters).",
    ("result",),
)
TENANT_UNLOADS = Metric(
    "millstream_tenant_model_unloads_total",
    "counter",
    "Models of tenants that were unloaded to load others. Many of them: `models.tenants.memory` is too small.",
)
LAG = Metric(
    "millstream_lag_events", "gauge", "Records not yet acknowledged, by assigned partition.", ("topic", "partition")
)
OLDEST_UNCOMMITTED = Metric(
    "millstream_oldest_uncommitted_seconds", "gauge", "Age of the oldest record that was read and not yet acknowledged."
)
IN_FLIGHT_EVENTS = Metric("millstream_in_flight_events", "gauge", "Records read and not yet acknowledged.")
IN_FLIGHT_BYTES = Metric(
    "millstream_in_flight_bytes",
    "gauge",
    "Estimated memory of the events in flight: 2 x their values (more for variable-length inputs) + 384 bytes each.",
)
WRITE_QUEUE = Metric(
    "millstream_write_queue_batches",
    "gauge",
    "Answered micro-batches that wait to be written; those written together are one.",
)
PAUSED = Metric("millstream_paused_partitions", "gauge", "Partitions paused because the worker holds its limit.")
ASSIGNED = Metric("millstream_assigned_partitions", "gauge", "Partitions assigned to this worker.")
REBALANCES = Metric("millstream_rebalances_total", "counter", "Assignments, revocations and losses.", ("kind",))
RETRIES = Metric("millstream_retries_total", "counter", "Waits because something the events need was away.", ("what",))
BLOCKED = Metric(
    "millstream_blocked_seconds",
    "gauge",
    "How long events have waited for the executor, the schemas, the features, or behind a batch that can't be read; the labels "
    "name the first waiting event. No series while nothing waits.",
    ("what", "topic", "partition", "offset"),
)
KAFKA_ERRORS = Metric("millstream_kafka_errors_total", "counter", "Errors that the Kafka client reported.", ("code",))
READY = Metric(
    "millstream_ready",
    "gauge",
    "1 while the worker takes events: after warm-up, with an assignment. 0 while it drains (unlike the probe `/ready`), and "
    "while the broker, the executor, the schemas or the features are away.",
)

ALL = (
    *(RECORDS_READ, TOMBSTONES, PREDICTIONS, DEAD_LETTERS, SKIPPED, REVOKED_DROPPED),
    *(INTERNAL_ERRORS, INVALID_DEADLINES),
    *(MISSING_EVENT_TIMES, MISSING_COSTS, MISSING_INCLUDED, MISSING_VALUES, UNKNOWN_VALUES),
    *(BATCHES, BATCH_EVENTS, BATCH_FILL, STAGE_SECONDS, END_TO_END),
    *(FEATURE_LOOKUPS, FEATURE_AGE, TRANSACTIONS),
    *(SERVING_MODEL, MODEL_RELOADS, MODEL_RELOAD_ERROR),
    *(ROLLOUT_SHARE, ROLLOUT_LOADED, ROLLOUT_REVISION, ROLLOUT_STATE, ROLLOUT_FALLBACKS, ROLLOUT_UNREADABLE),
    *(COMPARISONS, SHADOW_FAILED, SHADOW_SKIPPED, SHADOW_SECONDS),
    *(CASCADE_EVENTS, ESCALATED),
    *(TENANT_MODELS, TENANT_MODEL_BYTES, TENANT_LOADS, TENANT_UNLOADS),
    *(LAG, OLDEST_UNCOMMITTED, IN_FLIGHT_EVENTS, IN_FLIGHT_BYTES, WRITE_QUEUE, PAUSED, ASSIGNED),
    *(REBALANCES, RETRIES, BLOCKED, KAFKA_ERRORS, READY),
    *(REQUEST_SECONDS, FIRST_TOKEN_SECONDS, OUTPUT_TOKEN_SECONDS, TOKEN_USAGE),
)


def markdown(metrics: Iterable[Metric]) -> str:
    """A table of metrics for the documentation."""
    lines = ["| metric | kind | labels | what it says |", "|---|---|---|---|"]
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in ("pipeline", *metric.labels))
        lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |")
    return "\n".join(lines) + "\n"


class Metrics:
    """The metrics of one worker, in a registry of their own."""

    def __init__(self, pipeline: str) -> None:
        self.registry = CollectorRegistry()
        self._pipeline = pipeline
        self._families = {metric.name: _family(metric, self.registry) for metric in ALL}
        self._children: dict[tuple[str, ...], Any] = {}
        # If a series only appears with its first count, `rate` misses that count. So series whose labels are known begin at 0.
        for metric in ALL:
            if not metric.labels:
                self._child(metric, ())
        for reason in REASONS:
            self._child(DEAD_LETTERS, (reason,))
        for reason in ("expired", FILTERED):
            self._child(SKIPPED, (reason,))
        for stage in ("decode", "infer", "encode"):
            self._child(INTERNAL_ERRORS, (stage,))

    def observer(self, metric: Metric, *labels: str) -> Callable[[float], None]:
        """Adds one observation to a histogram. For what observes often: it finds the series only once."""
        add: Callable[[float], None] = self._child(metric, labels).observe
        return add

    def count(self, metric: Metric, by: float = 1, *labels: str) -> None:
        """Add to a counter."""
        self._child(metric, labels).inc(by)

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        """Set a gauge."""
        self._child(metric, labels).set(value)

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """Add one observation to a histogram."""
        self._child(metric, labels).observe(value)

    def observe_many(self, metric: Metric, values: npt.NDArray[np.float64], *labels: str) -> None:
        """Add observations to a histogram."""
        self._child(metric, labels).observe_many(values)

    def forget(self, metric: Metric, *labels: str) -> None:
        """Drop a gauge's value with these labels, such as the lag of a revoked partition."""
        if self._children.pop((metric.name, *labels), None) is not None:
            self._families[metric.name].remove(self._pipeline, *labels)

    def _child(self, metric: Metric, labels: tuple[str, ...]) -> Any:
        key = (metric.name, *labels)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = self._families[metric.name].labels(self._pipeline, *labels)
        return child


def _family(metric: Metric, registry: CollectorRegistry) -> Any:
    labels = ("pipeline", *metric.labels)
    if metric.kind == "counter":
        return Counter(metric.name, metric.help, labels, registry=registry)
    if metric.kind == "gauge":
        return Gauge(metric.name, metric.help, labels, registry=registry)
    histogram = Histogram(metric.name, metric.help, labels, metric.buckets)
    registry.register(histogram)
    return histogram
