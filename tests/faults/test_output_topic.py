"""The output topic is missing: a worker reports it and ends. Once the topic exists, no uncommitted event is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.broker.clients import create_topic, wait_until
from tests.faults.checker import RIGHT
from tests.faults.service import committed, under_load, verdict_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker
    from tests.consumers.service import Service
    from tests.faults.service import Fleet

pytestmark = pytest.mark.durable


def test_output_topic_missing_at_the_start(kafka: Broker, tmp_path: Path) -> None:
    with under_load(tmp_path, kafka, seed=1201) as (service, fleet, stream):
        _delete(service)
        _start_without_it(service, fleet)
        assert service.committed() == {}
        create_topic(service.bootstrap, service.output, 4, {})
        fleet.start("w0")
        assert verdict_of(service, fleet.finish(stream)) == RIGHT


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_output_topic_deleted_under_the_worker(kafka: Broker, tmp_path: Path, delivery: str) -> None:
    with under_load(tmp_path, kafka, seed=1202, delivery=delivery) as (service, fleet, stream):
        fleet.start("w0")
        fleet.wait_committed(2000)
        _delete(service)
        assert fleet["w0"].wait(120) == 1
        # Usually, the log names the topic. But a transaction that the deletion hits may only be reported as hanging or fenced.
        assert "Traceback" not in fleet["w0"].log
        _start_without_it(service, fleet)
        # An open transaction hides the offsets, until the broker ends it.
        wait_until(lambda: committed(service) is not None, 60, "the offsets to be known")
        done = service.committed()
        create_topic(service.bootstrap, service.output, 4, {})
        fleet.start("w0")
        sent = fleet.finish(stream)
        # Results committed before were deleted with the topic.
        since = [event for event in sent if event.offset >= done.get((service.inputs[0], event.partition), 0)]
        assert 0 < len(since) < len(sent)
        assert verdict_of(service, since) == RIGHT


def _start_without_it(service: Service, fleet: Fleet) -> None:
    """Start a worker without the topic, and check what a supervisor sees."""
    fleet.start("w0")
    assert fleet["w0"].wait() == 1
    assert f"{service.output} (output)" in fleet["w0"].log
    assert "Create them: millstream topics create" in fleet["w0"].log
    assert "Traceback" not in fleet["w0"].log


def _delete(service: Service) -> None:
    """Delete the output topic, and wait until no broker knows it."""
    admin = AdminClient({"bootstrap.servers": service.bootstrap})
    admin.delete_topics([service.output])[service.output].result()

    def gone() -> bool:
        try:
            return service.output not in admin.list_topics(timeout=10).topics
        except KafkaException:
            return False

    wait_until(gone, 60, f"topic {service.output} to go")
