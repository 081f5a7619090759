"""An XGBoost model that was trained on a DataFrame, and JSON events with null, absent and numeric values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.journeys.journey import Journey

TRAIN = """\
import json
from pathlib import Path
import numpy as np
import pandas as pd
from onnxmltools import convert_xgboost
from onnxmltools.convert.common.data_types import FloatTensorType
from xgboost import XGBClassifier

random = np.random.default_rng(2)
features = random.normal(size=(300, 3)).astype(np.float32)
labels = (features[:, 0] > 0).astype(int)
features[random.random(features.shape) < 0.2] = np.nan
frame = pd.DataFrame(features, columns=["age", "total", "clicks"])
model = XGBClassifier(n_estimators=20, max_depth=3, base_score=0.5).fit(frame, labels)
late = model.predict_proba(frame)[:, 1]
model.get_booster().feature_names = None
onnx_model = convert_xgboost(model, initial_types=[("features", FloatTensorType([None, 3]))])
Path("model.onnx").write_bytes(onnx_model.SerializeToString())
with open("events.jsonl", "w") as file:
    for i, row in enumerate(features):
        event = {"id": f"o{i}"}
        for name, value in zip(frame.columns, row):
            if not np.isnan(value):
                event[name] = float(value)
            elif i % 2:
                event[name] = None  # the others leave the field out
        file.write(json.dumps(event) + "\\n")
Path("expected.json").write_text(json.dumps({f"o{i}": float(p) for i, p in enumerate(late)}))
"""
CONFIG = """\
inputs:
  - tensor: features
    fields: [{field: age, missing: nan}, {field: total, missing: nan}, {field: clicks, missing: nan}]
    dtype: float32
outputs: [{tensor: probabilities, classes: [punctual, late]}]
"""


def travel(journey: Journey) -> None:
    journey.write("train.py", TRAIN)
    journey.run("python train.py")
    journey.run("millstream init trees --model model.onnx --sample events.jsonl")
    journey.run("cat trees/models/trees/1/config.yaml")
    journey.write("trees/models/trees/1/config.yaml", CONFIG)
    journey.run("millstream predict trees events.jsonl --limit 3")
    journey.run("millstream topics create trees --partitions 2")
    journey.run("millstream produce trees events.jsonl")
    assert "300 predicted" in journey.run("millstream work trees --until-idle")
    journey.run("millstream tail trees --from-beginning --limit 300 --timeout 20 --json > predictions.jsonl")
    expected = json.loads((journey.folder / "expected.json").read_text())
    journey.assert_predicted("predictions.jsonl", expected, lambda outputs: float(outputs["probabilities.late"]))
