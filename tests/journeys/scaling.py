"""Two workers, their lag, Ctrl-C and the totals."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.journeys.journey import json_lines
from tests.journeys.models import doubling

if TYPE_CHECKING:
    from tests.journeys.journey import Journey

EVENTS = 4000


def travel(journey: Journey) -> None:
    journey.write("model.py", doubling(0.002))
    journey.write("events.jsonl", json_lines([{"id": f"e{i}", "amount": i / 2} for i in range(EVENTS)]))
    journey.run("millstream init scaled --model model.py --sample events.jsonl")
    config = "scaled/models/scaled/1/config.yaml"
    journey.write(config, "inputs: [{tensor: numbers, fields: [amount], dtype: float64}]\noutputs: [{tensor: score}]\n")
    journey.change("scaled/pipeline.yaml", "event_id: id", "event_id: id\n  key: id")
    journey.run("millstream topics create scaled --partitions 4")
    journey.run("millstream produce scaled events.jsonl")
    assert json.loads(journey.run("millstream lag scaled --json"))["messages"] == EVENTS
    workers = journey.start("exec millstream run scaled --workers 2 --plain")
    workers.wait_for("2/2 workers")
    watch = journey.start("exec millstream lag scaled --watch --json --interval 1")
    watch.wait_for('"group": "scaled", "messages": 0,')
    watch.stop(expect=None)
    output = workers.stop()
    assert f"totals: {EVENTS:,} events read, {EVENTS:,} predicted (of 2 workers)" in output, output
    journey.run(f"millstream tail scaled --from-beginning --limit {EVENTS} --timeout 20 --json > predictions.jsonl")
    expected = {f"e{i}": float(i) for i in range(EVENTS)}
    journey.assert_predicted("predictions.jsonl", expected, lambda outputs: float(outputs["score"]))
