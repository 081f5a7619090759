"""A producer that renames fields of running workers: nothing is rejected, and the log says it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from confluent_kafka import Producer

from tests.consumers.processes import Worker
from tests.consumers.python_service import python_service
from tests.consumers.service import value_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker

EVENTS = 1000


def test_fields_that_are_renamed_while_a_worker_runs_are_in_its_log_metrics_and_totals(
    kafka: Broker, tmp_path: Path
) -> None:
    options = {"format": "json", "event_id": "id", "event_time": "at"}
    output = {"format": "json", "include": {"plate": "text", "coupon": "text", "x": "number", "parts[].sec": "number"}}
    service = python_service(tmp_path, kafka, "return {'y': -inputs['x']}", input=options, output=output)
    config = tmp_path / "models" / "number" / "1" / "config.yaml"
    config.write_text(config.read_text().replace("fields: [x]", "fields: [{field: x, missing: 0}]"))
    producer = Producer({"bootstrap.servers": service.bootstrap})

    def send(name: str, time: str, plate: str, item: str) -> None:
        for number in range(EVENTS):
            parts = [{item: 1}, {item: 2}] if number % 5 else []
            event = {"id": f"{name}{number}", name: 1, time: 5, plate: "M", "parts": parts}
            if number % 10 == 0:
                event["coupon"] = "C"
            producer.produce(service.inputs[0], json.dumps(event).encode(), partition=0)
        assert producer.flush(30) == 0

    with Worker(service.file) as worker:
        send("x", "at", "plate", "sec")
        service.wait_written(EVENTS)
        assert "absent" not in worker.log
        send("y", "happened_at", "licence", "seconds")
        service.wait_written(2 * EVENTS)
        assert worker.metrics()["millstream_missing_values_total{field=x,model=number}"] == EVENTS
        assert worker.metrics()["millstream_missing_event_times_total"] == EVENTS
        assert worker.metrics()["millstream_missing_included_total{field=plate}"] == EVENTS
        assert worker.stop() == 0, worker.log
    assert "WARNING millstream" in worker.log
    replaced = {
        "x": "the model gets 0 instead",
        "at": "the record's timestamp is the event's time instead",
        "plate": "their predictions have null in its place",
        "parts[].sec": "their predictions have null in its place",
    }
    assert worker.log.count("was absent or null") == len(replaced)
    for field, instead in replaced.items():
        said = re.search(
            rf"{re.escape(field)} was absent or null in ([\d,]+) of the last ([\d,]+) events; {instead}", worker.log
        )
        assert said, worker.log
        assert said[1] == said[2]
    included = "1,800 coupon, 1,000 plate, 800 parts[].sec"
    counted = f"3,600 missing included fields ({included}), 1,000 missing values filled (1,000 x)"
    assert f"2,000 predicted, 1,000 missing event times, {counted}" in worker.log
    times = [json.loads(value_of(message))["event_time"] for message in service.predictions()]
    assert (times.count(5), len(times)) == (EVENTS, 2 * EVENTS)
