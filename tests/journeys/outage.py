"""An outage: the broker is killed while events are in flight, and comes back on the data that it kept."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

from tests.journeys.journey import free_port, json_lines
from tests.journeys.models import doubling

if TYPE_CHECKING:
    from tests.journeys.journey import Background, Journey

EVENTS = 2000


def travel(journey: Journey) -> None:
    port = free_port()
    journey.variables["KAFKA_BOOTSTRAP"] = f"127.0.0.1:{port}"
    broker = start_broker(journey, port)
    journey.write("model.py", doubling(0.005))
    journey.write("events.jsonl", json_lines([{"id": f"e{i}", "amount": i / 2} for i in range(EVENTS)]))
    journey.run("millstream init outage --model model.py --sample events.jsonl")
    config = "outage/models/outage/1/config.yaml"
    journey.write(config, "inputs: [{tensor: numbers, fields: [amount], dtype: float64}]\noutputs: [{tensor: score}]\n")
    journey.change("outage/pipeline.yaml", "max_events: 256", "max_events: 32")
    journey.run("millstream topics create outage --partitions 2")
    worker = journey.start("exec millstream work outage")
    worker.wait_for("ready")
    journey.run("head -1000 events.jsonl | millstream produce outage")
    # The model takes 5 s for 1,000 events, so most of them are in flight after the first prediction.
    journey.run("millstream tail outage --from-beginning --limit 1 --timeout 60")
    broker.stop(signal.SIGKILL, -signal.SIGKILL)
    journey.run("millstream lag outage", expect=1)
    broker = start_broker(journey, port)
    written = journey.until("millstream lag outage --json", lambda text: '"messages"' in text)
    assert written
    journey.run("tail -1000 events.jsonl | millstream produce outage")
    journey.until("millstream lag outage --json", lambda text: '"messages": 0,' in text)
    output = worker.stop()
    # A worker that lost its place in the group reads the events in flight again.
    totals = re.search(r"totals: ([\d,]+) events read, ([\d,]+) predicted", output)
    assert totals, output
    assert min(int(count.replace(",", "")) for count in totals.groups()) >= EVENTS, output
    journey.run("millstream tail outage --from-beginning --timeout 5 --json > predictions.jsonl", expect=None)
    expected = {f"e{i}": float(i) for i in range(EVENTS)}
    journey.assert_predicted("predictions.jsonl", expected, lambda outputs: float(outputs["score"]), repeated=True)
    broker.stop()


def start_broker(journey: Journey, port: int) -> Background:
    """A broker that keeps its data in the folder kafka-data."""
    broker = journey.start(f"exec millstream broker --port {port} --data kafka-data --cache {journey.cache}")
    broker.wait_for(f"127.0.0.1:{port}")
    return broker
