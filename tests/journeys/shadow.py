"""A shadow of three classes: late labels, the comparison job and its verdict."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

from tests.journeys.journey import json_lines

if TYPE_CHECKING:
    from tests.journeys.journey import Journey

PETS = ("bird", "cat", "dog")
EVENTS = 600
START = 1_772_000_000_000  # ms since 1970
WRONG = {1: 3, 2: 10}  # version: every so manieth event gets another class
MODEL = """\
import numpy as np

class Model:
    def __init__(self, folder, device):
        pass

    def predict(self, inputs):
        best = inputs["numbers"][:, {column}].astype(int)
        scores = np.full((len(best), 3), 0.1)
        scores[np.arange(len(best)), best] = 0.8
        return {{"scores": scores}}
"""
CONFIG = """\
inputs: [{tensor: numbers, fields: [first_look, second_look], dtype: float64}]
outputs: [{tensor: scores, classes: [bird, cat, dog]}]
"""
COMPARED = """
shadows:
  - version: 2
comparison:
  task: multiclass
  window: 1h
  update_every: 1s
labels:
  topic: pets-seen
  format: json
  event_id: event
  value: pet
  wait: 6h
"""


def travel(journey: Journey) -> None:
    pets = _write_events(journey)
    journey.write("model.py", MODEL.format(column=0))
    journey.run("millstream init pets --model model.py --sample events.jsonl")
    journey.write("pets/models/pets/1/config.yaml", CONFIG)
    journey.write("pets/models/pets/2/model.py", MODEL.format(column=1))
    journey.write("pets/models/pets/2/config.yaml", CONFIG)
    journey.write("pets/pipeline.yaml", (journey.folder / "pets/pipeline.yaml").read_text() + COMPARED)
    journey.run("millstream check pets --offline")
    journey.run("millstream topics create pets --partitions 2")
    journey.run("millstream produce pets events.jsonl")
    assert f"{EVENTS} compared by shadows" in journey.run("millstream work pets --until-idle")
    job = journey.start("exec millstream compare pets")
    shown = journey.until(
        "millstream compare pets --show",
        lambda text: f"none of the {EVENTS} compared events has a label so far" in text,
        5,
    )
    assert "not decided yet" in shown, shown
    journey.write("labels.jsonl", json_lines([{"event": event, "pet": pet} for event, pet in pets.items()]))
    assert f"{EVENTS} labels written" in journey.run("millstream produce pets labels.jsonl --topic pets-seen")
    all_paired = f"all windows  labelled {EVENTS}, paired {EVENTS}"
    shown = journey.until("millstream compare pets --show", lambda text: all_paired in text, 0)
    right = {version: sum(number % wrong != 0 for number in range(EVENTS)) for version, wrong in WRONG.items()}
    better = (right[2] - right[1]) / EVENTS
    assert f"version 2 is better: accuracy {better:+.3f}" in shown, f"expected {better:+.3f}:\n{shown}"
    found = json.loads(journey.run("millstream compare pets --show --json"))
    assert found["verdict"]["outcome"] == "better"
    accuracies = [found["totals"][side]["accuracy"] for side in ("primary", "shadow")]
    assert [round(accuracy * EVENTS) for accuracy in accuracies] == [right[1], right[2]], accuracies
    journey.checked("both accuracies are those that the labels give")
    job.stop()


def _write_events(journey: Journey) -> dict[str, str]:
    """Events over 3 hours, with what each model takes the pet for; returns what it is."""
    choose = random.Random(3)
    pets = [choose.randrange(3) for _ in range(EVENTS)]
    looks = {
        version: [pet if number % wrong else (pet + 1) % 3 for number, pet in enumerate(pets)]
        for version, wrong in WRONG.items()
    }
    journey.write(
        "events.jsonl",
        json_lines(
            [
                {"id": f"p{number}", "seen_at": START + number * 18_000, "first_look": first, "second_look": second}
                for number, (first, second) in enumerate(zip(looks[1], looks[2], strict=True))
            ]
        ),
    )
    return {f"p{number}": PETS[pet] for number, pet in enumerate(pets)}
