"""The group assigns nothing to a worker, although a broker answers: the worker says so, and `/ready` fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, KafkaException
from confluent_kafka.admin import AdminClient

from millstream.pipeline.client_trial import membership
from millstream.pipeline.loading import load_pipeline
from millstream.topics.coordinator import coordinator_error
from millstream.topics.errors import BrokerUnreachableError
from millstream.topics.group import client_id
from millstream.topics.lag import LagReader
from tests.broker.choice import Broker
from tests.broker.clients import wait_until
from tests.broker.maven import MavenKafka, missing_for_maven
from tests.consumers.processes import Worker
from tests.consumers.service import vector_service

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.conftest import MakeTopic
    from tests.consumers.service import Service

WARNING = "has assigned nothing for 30 s: "
WARNED = 60  # seconds within which the warning comes


class WithoutCoordinators(MavenKafka):
    """A broker that can't create `__consumer_offsets`."""

    def _settings(self) -> dict[str, object]:
        return super()._settings() | {"offsets.topic.replication.factor": 3}


def standing_member(service: Service, settings: Mapping[str, str]) -> Consumer:
    """Another worker of the group, which has joined and never takes its assignment. The next rebalance waits for it."""
    pipeline = load_pipeline(service.file, {})
    consumer = Consumer(
        {
            "bootstrap.servers": pipeline.kafka.bootstrap,
            "group.id": pipeline.group_id,
            "client.id": client_id(pipeline),
            **settings,
        }
    )
    consumer.subscribe(list(pipeline.input.topics))
    admin = AdminClient({"bootstrap.servers": pipeline.kafka.bootstrap})

    def joined() -> bool:
        try:
            group = admin.describe_consumer_groups([pipeline.group_id])[pipeline.group_id].result(10)
        except KafkaException:  # the broker has just started: its coordinator isn't ready
            return False
        return bool(group.state == ConsumerGroupState.STABLE)

    wait_until(joined, 30, "another member to join")
    return consumer


def test_coordinator_that_answers_has_no_error(kafka: Broker, make_topic: MakeTopic) -> None:
    assert coordinator_error({"bootstrap.servers": kafka.bootstrap}, "any", make_topic()) is None


@pytest.mark.full
@pytest.mark.durable
def test_worker_says_that_the_groups_coordinator_does_not_answer(tmp_path: Path) -> None:
    if (missing := missing_for_maven()) is not None:
        pytest.skip(f"starts a broker of its own, but {missing}")
    with WithoutCoordinators() as own:
        service = vector_service(tmp_path, Broker(own.bootstrap, durable=True, kind="maven"))
        with Worker(service.file) as worker:
            worker.wait_for(lambda: WARNING in worker.log, WARNED, "told that there is no assignment")
            assert f"{WARNING}a broker answers, but the group's coordinator does not (" in worker.log
            status, why = worker.get("/ready")
            assert (status, "the group's coordinator does not (" in why) == (503, True)
            assert worker.stop() == 0
        reader = LagReader({"bootstrap.servers": own.bootstrap}, "any", list(service.inputs))
        with pytest.raises(BrokerUnreachableError, match="The group's coordinator isn't ready: try again"):
            reader.read()
        reader.close()


@pytest.mark.full
@pytest.mark.durable
def test_worker_says_that_another_member_delays_the_rebalance_and_when_that_is_over(
    kafka: Broker, tmp_path: Path
) -> None:
    service = vector_service(tmp_path, kafka)
    other = standing_member(service, {"partition.assignment.strategy": "cooperative-sticky"})
    with Worker(service.file) as worker:
        worker.wait_for(lambda: WARNING in worker.log, WARNED, "told that there is no assignment")
        assert f"{WARNING}its coordinator answers, so another member probably delays the rebalance" in worker.log
        other.close()
        worker.wait_ready()
        assert worker.log.count("has made an assignment, after ") == 1
        assert worker.stop() == 0


@pytest.mark.full
@pytest.mark.durable
def test_a_rebalance_waits_for_a_worker_that_stands_still_for_little_more_than_its_drain_may_take(
    kafka: Broker, tmp_path: Path
) -> None:
    service = vector_service(tmp_path, kafka, limits={"drain_timeout": "1s"})
    other = standing_member(service, membership(load_pipeline(service.file, {})))
    with Worker(service.file) as worker:
        worker.wait_for(
            lambda: "has made an assignment, after " in worker.log, 150, "assigned without the other member"
        )
        assert worker.stop() == 0
    other.close()
