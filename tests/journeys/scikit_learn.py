"""A scikit-learn model as ONNX, and flat JSON events."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.journeys.journey import Journey

TRAIN = """\
import json
from pathlib import Path
import numpy as np
from skl2onnx import to_onnx
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

random = np.random.default_rng(1)
features = random.normal(size=(300, 3)).astype(np.float32)
model = make_pipeline(StandardScaler(), LogisticRegression()).fit(features, features[:, 0] + features[:, 2] > 0.2)
Path("model.onnx").write_bytes(to_onnx(model, features[:1], options={"zipmap": False}).SerializeToString())
events = [{"id": f"o{i}", **dict(zip(["age", "total", "clicks"], map(float, row)))} for i, row in enumerate(features)]
Path("events.jsonl").write_text("".join(json.dumps(event) + "\\n" for event in events))
late = model.predict_proba(features)[:, 1]
Path("expected.json").write_text(json.dumps({f"o{i}": float(p) for i, p in enumerate(late)}))
"""


def travel(journey: Journey) -> None:
    journey.write("train.py", TRAIN)
    journey.run("python train.py")
    journey.run("millstream init orders --model model.onnx --sample events.jsonl")
    journey.run("cat orders/pipeline.yaml orders/models/orders/1/config.yaml")
    journey.run("millstream predict orders orders/events.jsonl --limit 3")
    journey.run("millstream check orders --offline")
    journey.run("millstream topics create orders --partitions 2")
    journey.run("millstream check orders")
    assert "300" in journey.run("millstream produce orders events.jsonl")
    assert "300 predicted" in journey.run("millstream work orders --until-idle")
    journey.run("millstream tail orders --from-beginning --limit 3")
    journey.run("millstream tail orders --from-beginning --limit 300 --timeout 20 --json > predictions.jsonl")
    shown = journey.run("millstream lag orders")
    assert shown.splitlines()[-1].split()[:2] == ["all", "0"], shown
    lag = json.loads(journey.run("millstream lag orders --json"))
    assert sum(partition["committed"] or 0 for partition in lag["partitions"]) == 300, lag
    expected = json.loads((journey.folder / "expected.json").read_text())
    journey.assert_predicted("predictions.jsonl", expected, lambda outputs: float(outputs["probabilities"][1]))
