"""`millstream work`: what keeps a worker from starting, and where it may be started from."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from benchmarks.load import vector_events
from tests.broker.choice import Broker
from tests.broker.clients import produce
from tests.consumers.processes import Worker
from tests.consumers.service import id_of, vector_service

if TYPE_CHECKING:
    from pathlib import Path

NOWHERE = Broker("127.0.0.1:1", durable=False, kind="mock")


@pytest.mark.durable
def test_missing_topics_are_told_in_one_message(kafka: Broker, tmp_path: Path) -> None:
    service = vector_service(tmp_path, kafka, with_topics=False)
    with Worker(service.file, "--log-level", "error") as worker:
        assert worker.wait() == 1
        [message] = worker.log.splitlines()
    assert f"{service.inputs[0]} (input)" in message
    assert "millstream topics create" in message


def test_taken_metrics_port_is_told_in_one_message(tmp_path: Path) -> None:
    service = vector_service(tmp_path, NOWHERE, with_topics=False)
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with Worker(service.file, "--metrics-port", str(port)) as worker:  # the later option counts
            assert worker.wait() == 1
            [message] = worker.log.splitlines()
    assert f"the metrics port 0.0.0.0:{port} can't be opened" in message
    assert "--metrics-port" in message


def test_worker_runs_from_a_folder_with_packages_of_our_names(kafka: Broker, tmp_path: Path) -> None:
    for name in ("schemas", "topics", "consumers", "inference"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('the wrong package')\n", encoding="utf-8")
    service = vector_service(tmp_path, kafka)
    load = vector_events(500, seed=37)
    with Worker(service.file, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}) as worker:
        worker.wait_ready()
        produce(kafka.bootstrap, service.inputs[0], zip(load.keys, load.values, strict=True))
        service.wait_written(500)
        assert worker.stop() == 0
    assert sorted(map(id_of, service.predictions())) == [f"event-{number:010d}" for number in range(500)]
