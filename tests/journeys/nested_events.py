"""Nested JSON: records in records, vocabularies, times, nulls, and event fields in the predictions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.journeys.journey import Journey

TRAIN = """\
import datetime, json
from pathlib import Path
import numpy as np
from skl2onnx import to_onnx
from sklearn.ensemble import RandomForestClassifier

random = np.random.default_rng(5)
COUNTRIES, DEVICES = ["other", "DE", "FR", "US"], ["phone", "laptop"]
events, rows = [], []
for i in range(400):
    country, device = str(random.choice(["DE", "FR", "US", "XX"])), str(random.choice(DEVICES))
    total = round(float(random.gamma(2, 30)), 2)
    prices = [round(float(price), 2) for price in random.gamma(2, 10, random.integers(1, 4))]
    placed = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC) + datetime.timedelta(minutes=37 * i)
    signed_up = datetime.datetime.fromtimestamp(1_700_000_000 + 3600 * i, datetime.UTC)
    order = {"id": f"o{i}", "placed_at": placed.isoformat(), "total": total}
    if i % 7 == 0:
        order["total"] = total = None
    elif i % 11 == 0:
        del order["total"]
        total = None
    customer = {"address": {"country": country}, "signed_up": int(signed_up.timestamp()), "device": device}
    events.append({"order": order, "customer": customer, "basket": {"items": [{"price": price} for price in prices]}})
    known = COUNTRIES.index(country) if country in COUNTRIES else 0
    rows.append([known, DEVICES.index(device), -1 if total is None else total, prices[0], placed.hour, signed_up.weekday()])
features = np.array(rows, np.float32)
wanted = (features[:, 2] > 40) ^ (features[:, 4] > 12) ^ (features[:, 5] > 2)
model = RandomForestClassifier(20, random_state=1).fit(features, wanted)
Path("model.onnx").write_bytes(to_onnx(model, features[:1], options={"zipmap": False}).SerializeToString())
Path("events.jsonl").write_text("".join(json.dumps(event) + "\\n" for event in events))
answers = model.predict_proba(features)[:, 1]
Path("expected.json").write_text(json.dumps({event["order"]["id"]: float(p) for event, p in zip(events, answers)}))
"""
CONFIG = """\
inputs:
  - tensor: X
    dtype: float32
    fields:
      - {field: customer.address.country, vocabulary: countries.txt, unknown: 0}
      - {field: customer.device, vocabulary: [phone, laptop]}
      - {field: order.total, missing: -1}
      - basket.items[0].price
      - {field: order.placed_at, time: iso8601, as: hour}
      - {field: customer.signed_up, time: seconds, as: weekday}
outputs:
  - tensor: probabilities
"""


def travel(journey: Journey) -> None:
    journey.write("train.py", TRAIN)
    journey.run("python train.py")
    journey.run("millstream init orders --model model.onnx --sample events.jsonl")
    refused = journey.run("millstream check orders --offline", expect=1)
    assert "TODO" in refused, "check accepts a mapping that isn't filled in"
    journey.write("orders/models/orders/1/config.yaml", CONFIG)
    journey.write("orders/models/orders/1/countries.txt", "other\nDE\nFR\nUS\n")
    journey.change(
        "orders/pipeline.yaml", "output:\n", "output:\n  include: {customer.device: text, order.total: number}\n"
    )
    journey.run("millstream predict orders events.jsonl --limit 2")
    journey.run("millstream check orders --offline")
    journey.run("millstream topics create orders --partitions 2")
    journey.run("millstream produce orders events.jsonl")
    assert "400 predicted" in journey.run("millstream work orders --until-idle")
    journey.run("millstream tail orders --from-beginning --limit 3")
    journey.run("millstream tail orders --from-beginning --limit 400 --timeout 20 --json > predictions.jsonl")
    expected = json.loads((journey.folder / "expected.json").read_text())
    journey.assert_predicted("predictions.jsonl", expected, lambda outputs: float(outputs["probabilities"][1]))
    events = {event["order"]["id"]: event for event in journey.rows("events.jsonl")}
    for row in journey.rows("predictions.jsonl"):
        event, included = events[row["value"]["event_id"]], row["value"]["event"]
        asked = {"customer.device": event["customer"]["device"], "order.total": event["order"].get("total")}
        assert included == asked, f"included {included}, expected {asked}"
