"""Real workers follow a rollout: each event once, by the variant that its prediction names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.consumers.rollout.routing import route
from tests.consumers.processes import Worker
from tests.consumers.serving.rollout_scene import RolloutScene, is_loaded, until_revision

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker

pytestmark = pytest.mark.broker
EVENTS = 400


@pytest.mark.durable
def test_worker_follows_a_rollout_from_the_start_to_the_promotion(kafka: Broker, tmp_path: Path) -> None:
    scene = RolloutScene(tmp_path, kafka, 1, 2)
    with Worker(scene.service.file) as worker:
        worker.wait_ready()
        scene.send(EVENTS)
        scene.start(75, 25)
        until_revision(worker, 1)
        worker.wait_for(lambda: is_loaded(worker, "canary", 2), 30, "ready with version 2")
        scene.send(EVENTS)
        scene.shift(0, 100, state="promoted")
        until_revision(worker, 2)
        scene.send(EVENTS)
        worker.wait_for(lambda: "version 1 of model vector is unloaded" in worker.log, 30, "rid of version 1")
        assert worker.metrics()["millstream_rebalances_total{kind=assigned}"] == 1
        assert worker.stop() == 0
    with Worker(scene.service.file, "--until-idle") as worker:  # starts with what the record names
        scene.send(EVENTS)
        assert worker.wait() == 0
    rows = scene.predictions()
    before, during, after, restarted = (rows[at : at + EVENTS] for at in range(0, 4 * EVENTS, EVENTS))
    assert {(row["version"], row["variant"], row["rollout"]) for row in before} == {(1, "primary", None)}
    assert [(row["version"], row["variant"]) for row in after + restarted] == [(2, "canary")] * 2 * EVENTS
    routed = route(scene.records[1].plan(), [scene.keys[row["event_id"]] for row in during])
    assert [row["version"] for row in during] == [1 + variant for variant in routed.variant.tolist()]
    assert {row["rollout"]["propensity"] for row in during} == {0.75, 0.25}
    assert all(row["rollout"]["assigned"] == row["variant"] and row["rollout"]["randomised"] for row in during)
    assert all(row["rollout"]["model_ms"] > 0 for row in during)
