"""A model in plain Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.journeys.journey import json_lines

if TYPE_CHECKING:
    from tests.journeys.journey import Journey

MODEL = """\
class Model:
    def __init__(self, folder, device):
        self.weight = 3.0

    def predict(self, inputs):
        return {"score": inputs["numbers"][:, 0] * self.weight + inputs["numbers"][:, 1]}
"""


def travel(journey: Journey) -> None:
    events = [{"id": f"e{i}", "amount": i / 2, "fee": i % 7} for i in range(200)]
    journey.write("model.py", MODEL)
    journey.write("events.jsonl", json_lines(events))
    journey.run("millstream init payments --model model.py --sample events.jsonl")
    config = "payments/models/payments/1/config.yaml"
    journey.run(f"cat {config}")
    # The guesses can't know the names in model.py: the page on models says how to write the mapping.
    journey.write(
        config, "inputs: [{tensor: numbers, fields: [amount, fee], dtype: float64}]\noutputs: [{tensor: score}]\n"
    )
    journey.run("millstream predict payments events.jsonl --limit 2")
    journey.run("millstream topics create payments --partitions 2")
    journey.run("millstream produce payments events.jsonl")
    assert "200 predicted" in journey.run("millstream work payments --until-idle")
    journey.run("millstream tail payments --from-beginning --limit 200 --timeout 20 --json > predictions.jsonl")
    expected = {f"e{i}": i / 2 * 3 + i % 7 for i in range(200)}
    journey.assert_predicted("predictions.jsonl", expected, lambda outputs: float(outputs["score"]))
