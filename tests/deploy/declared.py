"""Every series that the code serves and Prometheus makes of it: metric -> its labels."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from prometheus_client import CollectorRegistry

from millstream.consumers.autopilot import metrics as autopilot
from millstream.consumers.comparison import metrics as comparison
from millstream.consumers.observability import metrics as worker
from millstream.consumers.observability.lag_metrics import LagCollector, LagLook
from millstream.consumers.supervision.autoscaler import Fleet, Status
from millstream.consumers.supervision.merged_metrics import StatusCollector
from millstream.consumers.supervision.scaling import Decision
from millstream.topics.lag import PartitionLag
from millstream.topics.lag_trend import Trend
from tests.deploy.promql import asked

if TYPE_CHECKING:
    from collections.abc import Iterator

DEPLOY = Path(__file__).parents[2] / "deploy"
ON_ALL = frozenset({"job", "instance", "worker"})  # from Prometheus, and from `millstream run`


def rules(file: str) -> list[dict[str, Any]]:
    """The rules of a file in deploy/prometheus."""
    groups = yaml.safe_load((DEPLOY / "prometheus" / file).read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


@cache
def served() -> dict[str, frozenset[str]]:
    """What can be asked for, with the labels that each may have."""
    found = {"up": ON_ALL}
    for metric in (*worker.ALL, *comparison.ALL, *autopilot.ALL):
        for name, extra in _series(metric.name, metric.kind):
            found[name] = ON_ALL | {"pipeline", *metric.labels, *extra}
    for family in _run_registry().collect():
        for sample in family.samples:
            found[sample.name] = ON_ALL | found.get(sample.name, frozenset()) | set(sample.labels)
    for rule in rules("recording.yml"):
        found[rule["record"]] = asked(rule["expr"]).grouped
    return found


def _series(name: str, kind: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    if kind != "histogram":
        yield name, ()
        return
    yield from ((f"{name}_sum", ()), (f"{name}_count", ()), (f"{name}_bucket", ("le",)))


def _run_registry() -> CollectorRegistry:
    """What `millstream run` and `millstream lag --serve` add to the workers' metrics, all of it known."""
    lag = PartitionLag("t", 0, committed=1, start=1, end=2, messages=1, counted=True, seconds=1.0, deleted=0)
    trend = Trend(arrival=1.0, progress=1.0, stalled=0.0)
    look = LagLook(0.0, [lag], {("t", 0): trend}, trend)
    decision = Decision(1, "hold", "because", needed=1)
    status = Status(
        decision, Fleet(1, 0, {}), ready=1, lag=look, done_rate=1.0, capacity=1.0, utilisation=0.5, trend_known_for=9.0
    )
    registry = CollectorRegistry()
    registry.register(LagCollector("p", "g", lambda: look))
    registry.register(StatusCollector("p", lambda: status, lambda: 0))
    return registry
