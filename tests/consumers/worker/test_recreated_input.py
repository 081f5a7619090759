"""An input topic that is deleted and created anew under a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient

from tests.broker.clients import create_topic, wait_until
from tests.consumers.processes import Worker
from tests.consumers.python_service import answered, python_service, send

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker
    from tests.consumers.service import Service

pytestmark = pytest.mark.durable


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_events_of_the_new_topic_are_all_predicted(kafka: Broker, tmp_path: Path, delivery: str) -> None:
    service = python_service(tmp_path, kafka, "return {'y': inputs['x'][:, 0]}", delivery=delivery)
    send(service, range(20))
    with Worker(service.file, "--until-idle") as worker:
        assert worker.wait() == 0
    with Worker(service.file) as idle:
        idle.wait_ready()
        recreate(kafka, service, 4)
        send(service, range(20, 30))
        # It ends, or a rebalance at the deletion has made it begin anew.
        wait_until(lambda: not idle.running or len(answered(service)) == 30, 90, "the worker to end or to go on")
        if idle.running:
            assert idle.stop() == 0
        else:
            assert "created anew" in idle.log
    with Worker(service.file, "--until-idle") as successor:
        assert successor.wait() == 0
    assert sorted(answered(service)) == sorted(f"e{number}" for number in range(30))


@pytest.mark.parametrize("more", [20, 1000], ids=["as many", "more"])
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_events_of_a_new_topic_with_as_many_events_or_more_are_all_predicted(
    kafka: Broker, tmp_path: Path, delivery: str, more: int
) -> None:
    """The client sees nothing: it goes on at its old offset, or waits there for more events."""
    service = python_service(tmp_path, kafka, "return {'y': inputs['x'][:, 0]}", delivery=delivery)
    (topic,) = service.inputs
    with Worker(service.file) as worker:
        worker.wait_ready()
        send(service, range(20))
        wait_until(lambda: service.committed().get((topic, 0)) == 20, 60, "the commit")
        recreate(kafka, service, 4)
        send(service, range(20, 20 + more))
        wait_until(
            lambda: not worker.running or len(answered(service)) == 20 + more, 90, "the worker to end or to go on"
        )
        if worker.running:
            assert worker.stop() == 0
        else:
            assert "created anew" in worker.log
    with Worker(service.file, "--until-idle") as successor:
        assert successor.wait() == 0
    assert sorted(answered(service)) == sorted(f"e{number}" for number in range(20 + more))


def recreate(kafka: Broker, service: Service, partitions: int) -> None:
    """Delete the input topic, and create it anew once the group's offsets are gone, too."""
    (topic,) = service.inputs
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_topics([topic])[topic].result()
    wait_until(lambda: topic not in admin.list_topics(timeout=10).topics, 60, "the topic to go")
    wait_until(lambda: not service.committed(), 60, "the group's offsets to go")
    create_topic(kafka.bootstrap, topic, partitions, {})
