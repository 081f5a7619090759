"""An outage: the broker is killed while events are in flight, and comes back on the data that it kept."""

from __future__ import annotations

import json
import re
import signal
from typing import TYPE_CHECKING

from tests.journeys.journey import free_port, json_lines

if TYPE_CHECKING:
    from tests.journeys.journey import Background, Journey

EVENTS = 2000  # half of them before the outage
MODEL = """\
import time

class Model:
    def __init__(self, folder, device):
        pass

    def predict(self, inputs):
        time.sleep(0.01 * len(inputs["numbers"]))
        return {"score": inputs["numbers"][:, 0] * 2}
"""


def travel(journey: Journey) -> None:
    port = free_port()
    journey.variables["KAFKA_BOOTSTRAP"] = f"127.0.0.1:{port}"
    broker = start_broker(journey, port)
    journey.write("model.py", MODEL)
    journey.write("events.jsonl", json_lines([{"id": f"e{i}", "amount": i / 2} for i in range(EVENTS)]))
    journey.run("millstream init outage --model model.py --sample events.jsonl")
    config = "outage/models/outage/1/config.yaml"
    journey.write(config, "inputs: [{tensor: numbers, fields: [amount], dtype: float64}]\noutputs: [{tensor: score}]\n")
    journey.change("outage/pipeline.yaml", "max_events: 256", "max_events: 32")
    journey.run("millstream topics create outage --partitions 2")
    worker = journey.start("exec millstream work outage")
    worker.wait_for("ready")
    first = journey.start("exec millstream tail outage --from-beginning --limit 1 --timeout 60")
    first.wait_for("reading")
    journey.run(f"head -{EVENTS // 2} events.jsonl | millstream produce outage")
    # The model takes 10 s for 1,000 events, so most of them are in flight after the first prediction.
    first.wait_for("event_id")
    broker.stop(signal.SIGKILL, -signal.SIGKILL)
    first.stop(None)
    journey.run("millstream lag outage", expect=1)
    broker = start_broker(journey, port)
    left = json.loads(journey.until("millstream lag outage --json", lambda text: '"messages"' in text))["messages"]
    assert left, "no events were in flight when the broker was killed"
    journey.checked(f"{left} of {EVENTS // 2} events had no committed prediction when the broker came back")
    journey.run(f"tail -{EVENTS // 2} events.jsonl | millstream produce outage")
    journey.until("millstream lag outage --json", lambda text: json.loads(text)["messages"] == 0)
    output = worker.stop()
    assert "answers again" in output, output
    # A worker that lost its place in the group reads the events in flight again, and may predict some of them again.
    totals = re.search(r"totals: ([\d,]+) events read, ([\d,]+) predicted(?:, ([\d,]+) read again)?", output)
    assert totals, output
    read, predicted, undone = (int((count or "0").replace(",", "")) for count in totals.groups())
    assert read == predicted + undone, output
    assert predicted >= EVENTS, output
    journey.run("millstream tail outage --from-beginning --timeout 5 --json > predictions.jsonl", expect=None)
    expected = {f"e{i}": float(i) for i in range(EVENTS)}
    journey.assert_predicted("predictions.jsonl", expected, lambda outputs: float(outputs["score"]), repeated=True)
    broker.stop()


def start_broker(journey: Journey, port: int) -> Background:
    """A broker that keeps its data in the folder kafka-data."""
    broker = journey.start(f"exec millstream broker --port {port} --data kafka-data --cache {journey.cache}")
    broker.wait_for(f"127.0.0.1:{port}")
    return broker
