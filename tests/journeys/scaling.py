"""Two workers that share the events, their lag, Ctrl-C and the totals."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.journeys.journey import json_lines

if TYPE_CHECKING:
    from tests.journeys.journey import Journey

EVENTS = 4000  # half of them before the workers start
MODEL = """\
import os
import time

class Model:
    def __init__(self, folder, device):
        pass

    def predict(self, inputs):
        numbers = inputs["numbers"][:, 0]
        time.sleep(0.002 * len(numbers))
        return {"score": numbers * 2, "process": numbers * 0 + os.getpid()}
"""
CONFIG = """\
inputs: [{tensor: numbers, fields: [amount], dtype: float64}]
outputs: [{tensor: score}, {tensor: process}]
"""


def travel(journey: Journey) -> None:
    journey.write("model.py", MODEL)
    journey.write("events.jsonl", json_lines([{"id": f"e{i}", "amount": i / 2} for i in range(EVENTS)]))
    journey.run("millstream init scaled --model model.py --sample events.jsonl")
    journey.write("scaled/models/scaled/1/config.yaml", CONFIG)
    journey.change("scaled/pipeline.yaml", "event_id: id", "event_id: id\n  key: id")
    journey.run("millstream topics create scaled --partitions 4")
    journey.run(f"head -{EVENTS // 2} events.jsonl | millstream produce scaled")
    assert json.loads(journey.run("millstream lag scaled --json"))["messages"] == EVENTS // 2
    workers = journey.start("exec millstream run scaled --workers 2 --plain")
    workers.wait_for("2/2 workers")
    # The first worker may have read the first half alone. Those that it hasn't begun are left to the second one.
    journey.run(f"tail -{EVENTS // 2} events.jsonl | millstream produce scaled")
    watch = journey.start("exec millstream lag scaled --watch --json --interval 1")
    watch.wait_for('"group": "scaled", "messages": 0,')
    watch.stop(expect=None)
    output = workers.stop()
    totals = next(line for line in output.splitlines() if "totals:" in line)
    assert f"events read, {EVENTS:,} predicted" in totals, totals
    assert "(of 2 workers)" in totals, totals
    journey.run(f"millstream tail scaled --from-beginning --limit {EVENTS} --timeout 20 --json > predictions.jsonl")
    expected = {f"e{i}": float(i) for i in range(EVENTS)}
    journey.assert_predicted("predictions.jsonl", expected, lambda outputs: float(outputs["score"]))
    processes = {row["value"]["outputs"]["process"] for row in journey.rows("predictions.jsonl")}
    assert len(processes) == 2, f"expected predictions of 2 workers, found those of {len(processes)}"
    journey.checked("both workers have written some of them")
