from __future__ import annotations

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from millstream.consumers.observability import metrics as m
from millstream.consumers.supervision.autoscaler import Fleet, Status
from millstream.consumers.supervision.merged_metrics import MergedCollector, StatusCollector
from millstream.consumers.supervision.scaling import ACTIONS, Decision


def served(registry: CollectorRegistry) -> str:
    return generate_latest(registry).decode()


def types_of(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("# TYPE")]


def test_each_series_of_each_worker_is_there_once_with_its_worker() -> None:
    workers = {}
    for number in (0, 1):
        metrics = m.Metrics("flights")
        metrics.count(m.PREDICTIONS, 10 + number, "model", "1", "primary")
        metrics.observe(m.STAGE_SECONDS, 0.003, "infer")
        metrics.set(m.LAG, 5, "events", "0")
        workers[number] = served(metrics.registry)
    registry = CollectorRegistry()
    registry.register(MergedCollector(lambda: workers))
    text = served(registry)
    before = {
        (sample.name, tuple(sorted({**sample.labels, "worker": str(number)}.items()))): sample.value
        for number, own in workers.items()
        for family in text_string_to_metric_families(own)
        for sample in family.samples
    }
    after = [
        ((sample.name, tuple(sorted(sample.labels.items()))), sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]
    assert len(after) == len(before)
    assert dict(after) == before
    assert sorted(types_of(text)) == sorted(types_of(workers[0]))


def test_decision_is_told_as_numbers() -> None:
    fleet = Fleet(2, 0, {})
    decision = Decision(3, "up", "2 -> 3: because", needed=5, stuck=1)
    status = Status(
        decision, fleet, ready=2, lag=None, done_rate=10.0, capacity=500.0, utilisation=0.75, trend_known_for=0.0
    )
    registry = CollectorRegistry()
    registry.register(StatusCollector("flights", lambda: status, lambda: 4))
    value = {
        name: registry.get_sample_value(f"millstream_{name}", {"pipeline": "flights"})
        for name in (
            *("workers_wanted", "workers_ready", "workers_needed", "stuck_partitions", "worker_utilisation"),
            *("worker_capacity_events_per_second", "worker_restarts_total"),
        )
    }
    assert value == {
        "workers_wanted": 3, "workers_ready": 2, "workers_needed": 5, "stuck_partitions": 1, "worker_utilisation": 0.75,
        "worker_capacity_events_per_second": 500, "worker_restarts_total": 4,
    }  # fmt: skip
    told = {
        action: registry.get_sample_value("millstream_scaling_decision", {"pipeline": "flights", "action": action})
        for action in ACTIONS
    }
    assert told == {action: float(action == "up") for action in ACTIONS}


def test_before_the_first_decision_only_restarts_are_known() -> None:
    registry = CollectorRegistry()
    registry.register(StatusCollector("flights", lambda: None, lambda: 0))
    assert [family.name for family in registry.collect()] == ["millstream_worker_restarts"]
