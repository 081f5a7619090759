"""Workers that join one with a slow model and a backlog: they get their partitions at once, and no event is lost."""

from __future__ import annotations

import signal
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from millstream.consumers.observability import metrics as m
from tests.consumers.processes import Worker
from tests.consumers.python_service import answered, python_service, send

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker
    from tests.consumers.service import Service

PARTITIONS, EVENTS = 4, 4000
# Each batch of 10 events takes so long, until the test wants the rest to be quick.
SLOW = """
if not (FOLDER / "quick").exists():
    time.sleep({seconds})
return {{"y": -inputs["x"]}}
"""
ALL = Counter(f"e{number}" for number in range(EVENTS))
DELIVERIES = ["at_least_once", pytest.param("exactly_once", marks=pytest.mark.full)]
pytestmark = pytest.mark.durable


def slow_service(
    folder: Path, kafka: Broker, *, seconds: float = 0.1, in_flight: int = 2 * EVENTS, **sections: Any
) -> Service:
    """A backlog in all partitions. One worker may take very long to finish its events in flight."""
    limits = {"in_flight_events": in_flight, "drain_timeout": "10m"}
    body = SLOW.format(seconds=seconds)
    service = python_service(folder, kafka, body, batch={"max_events": 10}, limits=limits, **sections)
    for partition in range(PARTITIONS):
        send(service, range(partition, EVENTS, PARTITIONS), partition=partition)
    return service


def wait_in_flight(worker: Worker, events: int) -> None:
    worker.wait_ready()
    worker.wait_for(lambda: worker.metrics().get(m.IN_FLIGHT_EVENTS.name, 0) > events, 60, "reading the backlog")


def wait_predicting(worker: Worker) -> None:
    worker.wait_for(lambda: worker.metrics().get(m.PREDICTIONS.name, 0) > 0, 60, "predicting")


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_worker_that_joins_predicts_while_the_first_one_has_a_backlog(
    kafka: Broker, tmp_path: Path, delivery: str
) -> None:
    service = slow_service(tmp_path, kafka, delivery=delivery)
    with Worker(service.file) as first:
        wait_in_flight(first, EVENTS // 2)
        with Worker(service.file) as second:
            wait_predicting(second)
            assert service.committed() != service.input_ends()
            (tmp_path / "quick").touch()
            service.wait_committed(60)
            assert (first.stop(), second.stop()) == (0, 0)
            assert "not finished within" not in first.log
    assert Counter(answered(service)) == ALL


@pytest.mark.full
@pytest.mark.parametrize(
    ("delivery", "ordering"), [("at_least_once", "none"), ("at_least_once", "key"), ("exactly_once", "partition")]
)
def test_partitions_that_move_to_and_fro_lose_nothing_and_double_nothing(
    kafka: Broker, tmp_path: Path, delivery: str, ordering: str
) -> None:
    model = {"name": "number", "concurrent_batches": 2, "instances": 2}
    service = slow_service(
        tmp_path, kafka, seconds=1.0, in_flight=200, delivery=delivery, ordering=ordering, model=model
    )
    with Worker(service.file) as first:
        wait_in_flight(first, 100)
        for _ in range(2):
            with Worker(service.file) as second:
                wait_predicting(second)
                assert second.stop(timeout=60) == 0
        (tmp_path / "quick").touch()
        service.wait_committed(60)
        assert first.stop() == 0
    assert Counter(answered(service)) == ALL


@pytest.mark.full
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_worker_that_is_killed_after_partitions_have_left_it_loses_nothing(
    kafka: Broker, tmp_path: Path, delivery: str
) -> None:
    service = slow_service(tmp_path, kafka, delivery=delivery)
    with Worker(service.file) as first:
        wait_in_flight(first, EVENTS // 2)
        with Worker(service.file) as second:
            wait_predicting(second)
            first.stop(signal.SIGKILL)
            (tmp_path / "quick").touch()
            service.wait_committed(90)  # the group waits for the session of the killed worker
            assert second.stop() == 0
    found = Counter(answered(service))
    assert found.keys() == ALL.keys()
    if delivery == "exactly_once":
        assert found == ALL
