"""A PyTorch model that torch.export saves."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.journeys.journey import Journey

TRAIN = """\
import json
from pathlib import Path
import torch

torch.manual_seed(4)
model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).eval()

class Named(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model = model

    def forward(self, numbers):
        return {"score": self.model(numbers)[:, 0]}

features = torch.randn(200, 2)
batch = torch.export.Dim("batch", min=1, max=4096)
program = torch.export.export(Named().eval(), (features,), dynamic_shapes={"numbers": {0: batch}})
torch.export.save(program, "model.pt2")
events = [{"id": f"e{i}", "amount": a, "fee": b} for i, (a, b) in enumerate(features.tolist())]
Path("events.jsonl").write_text("".join(json.dumps(event) + "\\n" for event in events))
with torch.no_grad():
    scores = model(features)[:, 0].tolist()
Path("expected.json").write_text(json.dumps({f"e{i}": score for i, score in enumerate(scores)}))
"""
CONFIG = """\
inputs: [{tensor: numbers, fields: [amount, fee], dtype: float32}]
outputs: [{tensor: score}]
"""


def travel(journey: Journey) -> None:
    journey.write("train.py", TRAIN)
    journey.run("python train.py")
    journey.run("millstream init scores --model model.pt2 --sample events.jsonl")
    journey.run("cat scores/pipeline.yaml scores/models/scores/1/config.yaml")
    journey.write("scores/models/scores/1/config.yaml", CONFIG)
    pipeline = (journey.folder / "scores/pipeline.yaml").read_text()
    if "trust: true" not in pipeline:
        journey.change("scores/pipeline.yaml", "\nmodel:\n", "\nmodel:\n  trust: true\n")
    journey.run("millstream check scores --offline")
    journey.run("millstream predict scores events.jsonl --limit 2")
    journey.run("millstream topics create scores --partitions 2")
    journey.run("millstream produce scores events.jsonl")
    assert "200 predicted" in journey.run("millstream work scores --until-idle")
    journey.run("millstream tail scores --from-beginning --limit 200 --timeout 20 --json > predictions.jsonl")
    expected = json.loads((journey.folder / "expected.json").read_text())
    journey.assert_predicted("predictions.jsonl", expected, lambda outputs: float(outputs["score"]))
