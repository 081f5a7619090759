"""A partition that the label topic gets while the job runs: its labels count, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from tests.comparison.scene import Events, Job, comparison_scene

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker

pytest.importorskip("faust", reason="the comparison job's packages: make .venv/.comparison")
pytestmark = pytest.mark.durable


@pytest.mark.full
def test_labels_in_a_new_partition_are_joined_without_a_restart(tmp_path: Path, kafka: Broker) -> None:
    scene = comparison_scene(tmp_path, kafka)
    assert scene.pipeline.labels is not None
    topic = scene.pipeline.labels.topic
    events = Events.make(100)
    labels: list[bool] = events.labels.tolist()
    with Job(scene) as job:
        scene.compare(events)
        scene.label(events.ids[:50], labels[:50])
        job.wait_for_results(events=100, labelled=50)
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
        producer = Producer({"bootstrap.servers": kafka.bootstrap})  # one that knows the new partition
        for key, value in scene.labels(events.ids[50:], labels[50:]):
            producer.produce(topic, value, key, partition=2)
        assert producer.flush(30) == 0
        job.wait_for_results(events=100, labelled=100, timeout=400)
        assert job.stop() == 0
    assert "Unknown partition" not in job.log
    assert "Traceback" not in job.log
