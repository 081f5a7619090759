"""Models of three classes with late labels, from events and real workers to what a user reads."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.cli.command import millstream
from tests.comparison.scene import MINUTE, START, Job, Scene, comparison_scene
from tests.inference.class_events import ClassEvents
from tests.inference.models import tensor

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker

pytest.importorskip("faust", reason="the comparison job's packages: make .venv/.comparison")
pytestmark = pytest.mark.durable
PETS = ["bird", "cat", "dog"]
INPUT = {"schema": None, "event_id": "id", "event_time": "seen_at"}
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

    def send(self) -> None:
        """Write the events. Each has the logits of both models."""
        count = len(self.ids)
        times = START + np.arange(count) * (3 * 60 * MINUTE // count)
        logits = [np.log(answers.probabilities).tolist() for answers in (self.events.primary, self.events.shadow)]
        rows = [
            json.dumps({"id": event, "seen_at": at, "1": first, "2": second}).encode()
            for event, at, first, second in zip(self.ids, times.tolist(), *logits, strict=True)
        ]
        self.scene.write(self.scene.pipeline.input.topics[0], [(None, row) for row in rows])

    def label(self) -> None:
        """Write the labels: every other one as a name, the others as an index."""
        assert self.scene.pipeline.labels is not None
        pets = [PETS[label] if number % 2 else int(label) for number, label in enumerate(self.events.labels)]
        rows = [json.dumps({"event": event, "pet": pet}).encode() for event, pet in zip(self.ids, pets, strict=True)]
        self.scene.write(self.scene.pipeline.labels.topic, [(b"k", row) for row in rows])


def write_models(folder: Path) -> None:
    """Write versions 1 and 2 of the model `delay`, each with the outputs of a classifier made by scikit-learn.

    A version makes its class and its probabilities of the logits that the events have for it.
    """
    nodes = [
        helper.make_node("ArgMax", ["logits"], ["label"], axis=1, keepdims=0),
        helper.make_node("Softmax", ["logits"], ["probabilities"], axis=1),
    ]
    outputs = [tensor("label", ["N"], "int64"), tensor("probabilities", ["N", len(PETS)])]
    graph = helper.make_graph(nodes, "g", [tensor("logits", ["N", len(PETS)])], outputs)
    for version in ("1", "2"):
        place = folder / "models" / "delay" / version
        place.mkdir(parents=True)
        onnx.save(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), place / "model.onnx"
        )
        (place / "config.yaml").write_text(
            f'inputs: [{{tensor: logits, field: "{version}[]", dtype: float32, shape: [3]}}]\n'
            f"outputs: [{{tensor: label, classes: {json.dumps(PETS)}}}, {{tensor: probabilities, classes: {json.dumps(PETS)}}}]\n"
        )


@pytest.mark.full
def test_three_classes_with_late_labels_end_in_a_verdict_with_the_interval(tmp_path: Path, kafka: Broker) -> None:
    write_models(tmp_path)
    scene = comparison_scene(tmp_path, kafka, input=INPUT, comparison={"task": "multiclass"}, labels=LABELS)
    checked = millstream("check", tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "output `probabilities`: the class, and the probability of each class" in " ".join(checked.stdout.split())
    pets = Pets(scene, ClassEvents.make(COUNT, primary=2, shadow=0.1))
    with Job(scene) as job:
        pets.send()
        worked = millstream("work", tmp_path, "--until-idle", timeout=120)
        assert worked.returncode == 0, worked.stderr
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
    assert lines[-1].endswith("], 750 paired events")
    assert "all windows  labelled 750, paired 750" in lines
    assert any(line.startswith("  difference of log loss -") for line in lines)
    assert max(len(line) for line in lines if "`" not in line) <= 80  # a sentence with a command is one line
    done = millstream("compare", tmp_path, "--show", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 0
    assert (found["verdict"]["outcome"], found["verdict"]["figure"], found["totals"]["labels"]) == (
        "better",
        "accuracy",
        COUNT,
    )
    assert found["totals"]["shadow"]["accuracy"] == pytest.approx(right["shadow"])
