"""Models of three classes with late labels, from the comparisons on a real broker to what a user reads."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest

from millstream.schemas.comparisons import ComparisonEncoder, Variant
from millstream.schemas.records import COMPARISON
from tests.cli.command import millstream
from tests.comparison.scene import MINUTE, START, Job, Scene, comparison_scene
from tests.inference.class_events import ClassEvents

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.inference.class_evaluation import Answers
    from tests.broker.choice import Broker

pytest.importorskip("faust", reason="the comparison job's packages: make .venv/.comparison")
pytestmark = pytest.mark.durable
PETS = ["bird", "cat", "dog"]
LABELS = {"schema": None, "value": "pet", "wait": "6h"}
COUNT = 750


@dataclass(frozen=True)
class Pets:
    """Events of three windows, in a scene whose models choose one of three classes."""

    scene: Scene
    events: ClassEvents

    @property
    def ids(self) -> list[str]:
        return [f"pet-{number}" for number in range(len(self.events.labels))]

    def compare(self) -> None:
        """Write the comparisons: one score for each class, as a prediction has them."""
        encoder = ComparisonEncoder(
            COMPARISON.reserved_id, self.scene.pipeline.name, primary=("delay", 1), shadow=Variant("delay", 2)
        )
        count = len(self.ids)
        times = START + np.arange(count) * (3 * 60 * MINUTE // count)
        sides = [_outputs(answers) for answers in (self.events.primary, self.events.shadow)]
        values = encoder.encode(self.ids, [None] * count, times, sides[0], 1.0, sides[1], 2.0)
        rows = [(event.encode(), value) for event, value in zip(self.ids, values, strict=True)]
        self.scene.write(self.scene.pipeline.comparison.topic, rows)

    def label(self) -> None:
        """Write the labels: every other one as a name, the others as an index."""
        assert self.scene.pipeline.labels is not None
        pets = [PETS[label] if number % 2 else int(label) for number, label in enumerate(self.events.labels)]
        rows = [json.dumps({"event": event, "pet": pet}).encode() for event, pet in zip(self.ids, pets, strict=True)]
        self.scene.write(self.scene.pipeline.labels.topic, [(b"k", row) for row in rows])


def _outputs(answers: Answers) -> dict[str, np.ndarray]:
    return {f"scores.{name}": answers.probabilities[:, place] for place, name in enumerate(PETS)}


def test_three_classes_with_late_labels_end_in_a_verdict_with_the_interval(tmp_path: Path, kafka: Broker) -> None:
    scene = comparison_scene(tmp_path, kafka, comparison={"task": "multiclass", "classes": PETS}, labels=LABELS)
    pets = Pets(scene, ClassEvents.make(COUNT, primary=2, shadow=0.1))
    with Job(scene) as job:
        pets.compare()
        job.wait_for_results(events=COUNT, labelled=0)
        shown = millstream("compare", tmp_path, "--show")
        assert shown.returncode == 5
        assert "none of the 750 compared events has a label so far" in " ".join(shown.stdout.split())
        pets.label()
        rows = job.wait_for_results(events=COUNT, labelled=COUNT)
        assert job.stop() == 0
    right = {
        side: (answers.classes == pets.events.labels).mean()
        for side, answers in (("primary", pets.events.primary), ("shadow", pets.events.shadow))
    }
    for side, share in right.items():
        assert sum(row[side]["accuracy"] * row["paired"] for row in rows) / COUNT == pytest.approx(share)
    shown = millstream("compare", tmp_path, "--show")
    assert (shown.returncode, shown.stderr) == (0, "")
    lines = shown.stdout.splitlines()
    assert lines[-1].startswith("version 2 is better: accuracy +0.")
    assert lines[-1].endswith("], 750 labels")
    assert "all windows  750 labels" in lines
    assert any(line.startswith("  difference of log loss -") for line in lines)
    assert max(map(len, lines)) <= 80
    done = millstream("compare", tmp_path, "--show", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 0
    assert (found["verdict"]["outcome"], found["verdict"]["figure"], found["totals"]["labels"]) == (
        "better",
        "accuracy",
        COUNT,
    )
    assert found["totals"]["shadow"]["accuracy"] == pytest.approx(right["shadow"])
