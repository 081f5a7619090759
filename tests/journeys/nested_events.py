"""Nested JSON events: vocabularies, times, null and absent values, and fields of the event in its prediction."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from tests.journeys.journey import json_lines

if TYPE_CHECKING:
    from tests.journeys.journey import Journey

COUNTRIES = ("OTHER", "DE", "FR")
CHANNELS = ("web", "shop")
START = datetime(2026, 3, 1, 22, tzinfo=UTC)
EVENTS = 300
# The model gives each element a decimal place of its own, so that a swapped or shifted one changes the score.
WEIGHTS = {"country": 10.0, "channel": 100.0, "hour": 1000.0, "age": 1e-3, "total": 1e6}
MODEL = """\
class Model:
    def __init__(self, folder, device):
        pass

    def predict(self, inputs):
        codes, times, total = inputs["codes"], inputs["times"], inputs["total"][:, 0]
        return {"score": codes @ [10.0, 100.0] + times @ [1000.0, 1e-3] + total * 1e6}
"""
CONFIG = """\
inputs:
  - tensor: codes
    dtype: int64
    fields:
      - {field: customer.country, vocabulary: [OTHER, DE, FR], unknown: 0}
      - {field: channel, vocabulary: [web, shop]}
  - tensor: times
    dtype: float64
    fields:
      - {field: created_at, time: iso8601, as: hour}
      - {field: customer.since, time: seconds, as: age}
  - tensor: total
    dtype: float64
    fields: [{field: "items[0].price", missing: -1}]
outputs: [{tensor: score}]
"""


def travel(journey: Journey) -> None:
    events = [_event(number) for number in range(EVENTS)]
    journey.write("model.py", MODEL)
    journey.write("events.jsonl", json_lines(events))
    journey.run("millstream init baskets --model model.py --sample events.jsonl")
    journey.run("cat baskets/pipeline.yaml baskets/models/baskets/1/config.yaml")
    journey.write("baskets/models/baskets/1/config.yaml", CONFIG)
    _set_input(journey)
    journey.change(
        "baskets/pipeline.yaml",
        "output:\n",
        "output:\n  include: {customer.country: text, note: text, customer.since: int}\n",
    )
    journey.run("millstream check baskets --offline")
    journey.run("millstream predict baskets events.jsonl --limit 3")
    journey.run("millstream topics create baskets --partitions 2")
    journey.run("millstream produce baskets events.jsonl")
    assert f"{EVENTS} predicted" in journey.run("millstream work baskets --until-idle")
    journey.run(f"millstream tail baskets --from-beginning --limit {EVENTS} --timeout 20 --json > predictions.jsonl")
    expected = {event["order"]["id"]: _score(event) for event in events}
    journey.assert_predicted("predictions.jsonl", expected, lambda outputs: float(outputs["score"]))
    found = {row["value"]["event_id"]: row["value"]["event"] for row in journey.rows("predictions.jsonl")}
    for event in events:
        included = {
            "customer.country": event["customer"]["country"],
            "note": event.get("note"),
            "customer.since": event["customer"]["since"],
        }
        assert found[event["order"]["id"]] == included, f"{found[event['order']['id']]}, expected {included}"
    journey.checked(f"the {EVENTS} predictions have the included fields of their events")


def _set_input(journey: Journey) -> None:
    """Name the event's ID and time, as the person who knows the events does."""
    path = journey.folder / "baskets/pipeline.yaml"
    lines = [line for line in path.read_text().splitlines() if not line.strip(" #").startswith("event_")]
    place = next(number for number, line in enumerate(lines) if line.strip() == "format: json")
    lines[place + 1 : place + 1] = [
        "  event_id: order.id",
        "  event_time: created_at",
        "  event_time_format: iso8601",
    ]
    journey.write("baskets/pipeline.yaml", "\n".join(lines) + "\n")


def _event(number: int) -> dict[str, Any]:
    event: dict[str, Any] = {
        "order": {"id": f"b{number}"},
        "created_at": (START + timedelta(minutes=17 * number)).isoformat(),
        "channel": CHANNELS[number % 2],
        "customer": {"country": ["DE", "FR", "XX"][number % 3], "since": 1_700_000_000 + number * 86_400},
        "items": [{"sku": "a", "price": number / 4}] if number % 5 else [],
        "note": [None, "gift"][number % 2],
    }
    if number % 7 == 0:
        del event["note"]
    if number % 11 == 0:
        event["items"] = None
    return event


def _score(event: dict[str, Any]) -> float:
    """What the model computes of the event, by the standard library alone."""
    created = datetime.fromisoformat(event["created_at"])
    country = event["customer"]["country"]
    elements = {
        "country": COUNTRIES.index(country) if country in COUNTRIES else 0,
        "channel": CHANNELS.index(event["channel"]),
        "hour": created.hour,
        "age": created.timestamp() - event["customer"]["since"],
        "total": event["items"][0]["price"] if event["items"] else -1,
    }
    return float(sum(WEIGHTS[name] * value for name, value in elements.items()))
