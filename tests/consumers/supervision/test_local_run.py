"""`/ready` of `millstream run`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from millstream.consumers.supervision.local_run import RunHealth


@pytest.mark.parametrize(
    ("lag", "problem", "waits", "said"),
    [
        (None, "no broker answers.", "", "; the lag is unknown: no broker answers"),
        (None, "", "", ""),
        ("known", "no broker answered the last time", "", ""),
        ("known", "", "worker 1: not ready: starting", "; worker 1: not ready: starting"),
    ],
)
def test_ready_says_why_the_lag_is_unknown_and_what_a_worker_waits_for(
    lag: object, problem: str, waits: str, said: str
) -> None:
    fleet, reason = SimpleNamespace(size=2), "the size is fixed"
    status: Any = SimpleNamespace(ready=1, fleet=fleet, reason=reason, lag=lag)
    health = RunHealth(lambda: status, lambda: problem, lambda: waits)
    assert health.readiness() == (False, f"1 ready of 2 workers; the size is fixed{said}")


def test_run_is_not_ready_once_its_workers_have_ended_or_it_stops() -> None:
    fleet, reason = SimpleNamespace(size=2), "the size is fixed"
    status: Any = SimpleNamespace(ready=2, fleet=fleet, reason=reason, lag="known")
    health = RunHealth(lambda: status, str, str)
    health.ready = True
    assert health.readiness() == (True, "2 ready of 2 workers; the size is fixed")
    status.ready = 0  # the loop has not seen it yet
    assert health.readiness() == (False, "0 ready of 2 workers; the size is fixed")
    status.ready = 2
    health.draining = lambda: 2
    assert health.readiness() == (False, "stopping: 2 workers left to drain")


def test_run_that_starts_asks_for_no_problem() -> None:
    def problem() -> str:
        raise AssertionError("nothing measures the lag yet")

    assert RunHealth(lambda: None, problem, problem).readiness() == (False, "not ready: starting")
