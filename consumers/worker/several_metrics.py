"""The metrics of executors that run several models."""

from collections.abc import Sequence
from threading import Lock

from millstream.consumers.observability import metrics as m
from millstream.consumers.observability.metrics import Metrics
from millstream.inference.combined.cascade_executor import CascadeExecutor
from millstream.inference.combined.tenant_executor import TenantExecutor
from millstream.inference.combined.tenant_models import Counts
from millstream.inference.executors.interface import Executor


def count_several(executors: Sequence[Executor], metrics: Metrics) -> None:
    """Let the executors count: a cascade the events that it escalates, and tenants' models what is loaded."""

    def cascaded(events: int, escalated: int) -> None:
        metrics.count(m.CASCADE_EVENTS, events)
        metrics.count(m.ESCALATED, escalated)

    for executor in executors:
        if isinstance(executor, CascadeExecutor):
            executor.on_answered = cascaded
    tenants = [executor for executor in executors if isinstance(executor, TenantExecutor)]
    report = _TenantReport(tenants, metrics)
    for executor in tenants:
        executor.on_change = report.update


class _TenantReport:
    """What all copies have loaded. Threads may share it."""

    def __init__(self, executors: Sequence[TenantExecutor], metrics: Metrics) -> None:
        self._executors = executors
        self._metrics = metrics
        self._lock = Lock()
        self._last = Counts()

    def update(self) -> None:
        """Count what has changed."""
        with self._lock:
            found = [executor.counts() for executor in self._executors]
            now = Counts(*(sum(values) for values in zip(*found, strict=True)))
            self._metrics.set(m.TENANT_MODELS, now.models)
            self._metrics.set(m.TENANT_MODEL_BYTES, now.bytes)
            self._metrics.count(m.TENANT_LOADS, now.loaded - self._last.loaded, "loaded")
            self._metrics.count(m.TENANT_LOADS, now.failed - self._last.failed, "failed")
            self._metrics.count(m.TENANT_UNLOADS, now.evicted - self._last.evicted)
            self._last = now
