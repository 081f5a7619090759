"""A permission that is withdrawn from the running comparison job ends it. Nothing that it has read is left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AclOperation, ResourceType  # type: ignore[attr-defined]

from tests.broker.choice import Broker
from tests.broker.guarded import GuardedKafka, become_app, guarded_kafka
from tests.comparison.scene import Events, Job, Scene, check, comparison_scene

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytest.importorskip("faust", reason="the comparison job's packages: make .venv/.comparison")
pytestmark = [pytest.mark.durable, pytest.mark.full]
STEP = 600


@pytest.fixture(scope="module")
def guarded() -> Iterator[GuardedKafka]:
    with guarded_kafka() as broker:
        broker.grant(ResourceType.TOPIC, "*", AclOperation.ALL)
        broker.grant(ResourceType.GROUP, "*", AclOperation.ALL)
        yield broker


@pytest.fixture
def scene(guarded: GuardedKafka, tmp_path: Path) -> Scene:
    """Its job is the user `app`."""
    made = comparison_scene(tmp_path, Broker(guarded.bootstrap, durable=True, kind="maven"))
    become_app(made.file, guarded)
    return made


def test_permissions_that_are_missing_at_the_start_are_named(guarded: GuardedKafka, scene: Scene) -> None:
    group, evaluations = f"{scene.pipeline.group_id}-comparison", scene.pipeline.comparison.evaluations
    missing = [(ResourceType.GROUP, group, AclOperation.READ), (ResourceType.TOPIC, evaluations, AclOperation.WRITE)]
    for each in missing:
        guarded.forbid(*each)
    with Job(scene) as job:
        assert job.wait() == 1
        assert f"WRITE on topic {evaluations}, READ on group {group}. Grant them" in job.log
    for each in missing:
        guarded.allow_again(*each)


@pytest.mark.parametrize(
    ("topic", "operation"),
    [
        ("{group}-comparison-chunks-changelog", AclOperation.WRITE),
        ("{group}-comparison-labels", AclOperation.WRITE),
        ("{group}-comparison-parts", AclOperation.WRITE),
        ("{evaluations}", AclOperation.WRITE),
        ("{labels}", AclOperation.READ),
    ],
)
def test_permission_that_is_withdrawn_ends_the_job_which_then_goes_on_where_it_was(
    guarded: GuardedKafka, scene: Scene, topic: str, operation: AclOperation
) -> None:
    pipeline = scene.pipeline
    assert pipeline.labels is not None
    name = topic.format(
        group=pipeline.group_id, evaluations=pipeline.comparison.evaluations, labels=pipeline.labels.topic
    )
    events = Events.make(2 * STEP)
    with Job(scene, "--metrics-port", "0") as job:
        for number in range(2):
            part = events.part(STEP * number, STEP * (number + 1))
            scene.compare(part)
            scene.label(part.ids, part.labels.tolist())
            if number == 0:
                job.wait_for_results(events=STEP, labelled=STEP)
                guarded.forbid(ResourceType.TOPIC, name, operation)
        assert job.wait() == 1
        assert "Grant the user of `kafka.client` the missing permission" in job.log
        assert name in job.log
        assert "left out" not in job.log
        assert "Traceback" not in job.log
    guarded.allow_again(ResourceType.TOPIC, name, operation)
    with Job(scene, "--metrics-port", "0") as job:
        for row in job.wait_for_results(events=2 * STEP, labelled=2 * STEP):
            check(row, events)
        assert job.stop() == 0
        assert "left out" not in job.log
