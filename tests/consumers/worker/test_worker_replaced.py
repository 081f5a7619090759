"""A producer that renames a field of running workers: nothing is rejected, and the log says it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from confluent_kafka import Producer

from tests.consumers.processes import Worker
from tests.consumers.python_service import python_service

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker

EVENTS = 1000


def test_field_that_is_renamed_while_a_worker_runs_is_in_its_log_metrics_and_totals(
    kafka: Broker, tmp_path: Path
) -> None:
    options = {"format": "json", "event_id": "id"}
    service = python_service(tmp_path, kafka, "return {'y': -inputs['x']}", input=options)
    config = tmp_path / "models" / "number" / "1" / "config.yaml"
    config.write_text(config.read_text().replace("fields: [x]", "fields: [{field: x, missing: 0}]"))
    producer = Producer({"bootstrap.servers": service.bootstrap})

    def send(name: str) -> None:
        for number in range(EVENTS):
            producer.produce(service.inputs[0], json.dumps({"id": f"{name}{number}", name: 1}).encode(), partition=0)
        assert producer.flush(30) == 0

    with Worker(service.file) as worker:
        send("x")
        service.wait_written(EVENTS)
        assert "absent" not in worker.log
        send("y")
        service.wait_written(2 * EVENTS)
        assert worker.metrics()["millstream_missing_values_total{field=x,model=number}"] == EVENTS
        assert worker.stop() == 0, worker.log
    assert "WARNING millstream" in worker.log
    said = re.search(
        r"x was absent or null in ([\d,]+) of the last ([\d,]+) events; the model gets 0 instead", worker.log
    )
    assert said, worker.log
    assert said[1] == said[2]
    assert "2,000 predicted, 1,000 missing values filled (1,000 x)" in worker.log
