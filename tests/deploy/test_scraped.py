"""A running service under load as Prometheus sees it: panels have data, and alerts fire when something breaks."""

from __future__ import annotations

import itertools
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from benchmarks.load import vector_events, write_load
from millstream.consumers.supervision.child import MILLSTREAM
from tests.broker.clients import produce
from tests.consumers.service import vector_service
from tests.deploy.dashboards import OF_ALL, Query, queries
from tests.deploy.programs import Program
from tests.deploy.prometheus import MISSING, Prometheus

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.broker.choice import Broker
    from tests.consumers.service import Service

pytestmark = [
    pytest.mark.durable,
    pytest.mark.skipif(MISSING is not None, reason=str(MISSING)),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

NEED_MORE = {
    "Capacity of a worker": "learnt while events wait",
    "Waiting for what is away": "nothing is away",
    "Errors of the Kafka client": "none has come",
}
"""Panels that are empty in this test, and why; test_composed.py has them."""


@contextmanager
def load_of(service: Service) -> Iterator[None]:
    """Events all the time."""
    stopping = threading.Event()

    def write() -> None:
        for seed in itertools.count():
            if stopping.wait(0.2):
                return
            write_load(service.bootstrap, service.inputs[0], vector_events(200, seed=seed))

    writer = threading.Thread(target=write, name="load")
    writer.start()
    try:
        yield
    finally:
        stopping.set()
        writer.join()


def without_data(prometheus: Prometheus, asked: list[Query], service: Service) -> list[Query]:
    return [query for query in asked if not prometheus.query(query.filled(pipeline=service.group))]


def test_panels_have_data_and_alerts_fire(kafka: Broker, tmp_path: Path) -> None:
    service = vector_service(tmp_path, kafka, delivery="exactly_once", scaling={"max": 2})
    options = ["--plain", "--metrics-port", "0", "--metrics-host", "127.0.0.1"]
    with (
        Program([*MILLSTREAM, "run", *options, str(service.file)], tmp_path) as run,
        Prometheus(tmp_path / "prometheus", {"millstream": run.port}) as prometheus,
    ):
        with load_of(service):
            left = [query for query in queries(*OF_ALL) if query.panel not in NEED_MORE]
            left = [query for query in left if "millstream_workers_needed" not in query.expr]  # learnt, too

            def all_there() -> bool:
                left[:] = without_data(prometheus, left, service)
                return not left

            try:
                prometheus.wait_for(all_there, "every panel's query to return data")
            except TimeoutError as error:
                raise TimeoutError(f"{error} Without data: {[f'{q.panel}: {q.expr}' for q in left]}") from None
            assert "MillstreamDeadLetters" not in prometheus.firing()
            produce(service.bootstrap, service.inputs[0], [(None, b"no event")] * 100)
            prometheus.wait_firing("MillstreamDeadLetters")
        run.process.kill()
        run.process.wait()
        prometheus.wait_firing("MillstreamDown")
