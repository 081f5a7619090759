"""Merges all workers' metrics: each series gets the label `worker`. Also adds the supervisor's own metrics."""

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from millstream.consumers.supervision.autoscaler import Status
from millstream.consumers.supervision.scaling import ACTIONS


class MergedCollector(Collector):
    """The workers' metrics of the last reading."""

    def __init__(self, texts: Callable[[], Mapping[int, str]]) -> None:
        """Args:
        texts: returns each worker's metrics in Prometheus's text format, by worker number.
        """
        self._texts = texts

    def collect(self) -> Iterable[Metric]:
        """See `prometheus_client.registry.Collector`."""
        families: dict[str, Metric] = {}
        for number, text in sorted(self._texts().items()):
            for family in text_string_to_metric_families(text):
                merged = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                for sample in family.samples:
                    merged.add_sample(sample.name, {**sample.labels, "worker": str(number)}, sample.value)
        return families.values()


class StatusCollector(Collector):
    """The number of workers, and the scaling decision."""

    def __init__(self, pipeline: str, status: Callable[[], Status | None], restarts: Callable[[], int]) -> None:
        """Args:
        pipeline: the pipeline's name.
        status: returns the latest status; None before the first.
        restarts: returns the number of restarts of workers so far.
        """
        self._pipeline = pipeline
        self._status = status
        self._restarts = restarts

    def collect(self) -> Iterable[Metric]:
        """See `prometheus_client.registry.Collector`."""
        restarts = CounterMetricFamily(
            "millstream_worker_restarts", "Workers started again after they had ended.", labels=("pipeline",)
        )
        restarts.add_metric([self._pipeline], self._restarts())
        status = self._status()
        if status is None:
            return [restarts]
        gauges = [
            self._gauge("workers_wanted", "Workers that should run, by the scaling decision.", status.decision.workers),
            self._gauge("workers_ready", "Workers that take events.", status.ready),
            self._gauge("stuck_partitions", "Partitions whose backlog no worker moves.", status.decision.stuck),
            self._gauge("worker_utilisation", "Share of their time that the workers are busy.", status.utilisation),
        ]
        if status.decision.needed is not None:
            text = "Workers that the load needs, before hysteresis and limits."
            gauges.append(self._gauge("workers_needed", text, status.decision.needed))
        if status.capacity is not None:
            text = "Events per busy second of one worker: its capacity."
            gauges.append(self._gauge("worker_capacity_events_per_second", text, status.capacity))
        actions = GaugeMetricFamily(
            "millstream_scaling_decision",
            "1 for the action of the current scaling decision.",
            labels=("pipeline", "action"),
        )
        for action in ACTIONS:
            actions.add_metric([self._pipeline, action], float(action == status.decision.action))
        return [restarts, *gauges, actions]

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        gauge = GaugeMetricFamily(f"millstream_{name}", text, labels=("pipeline",))
        gauge.add_metric([self._pipeline], value)
        return gauge
