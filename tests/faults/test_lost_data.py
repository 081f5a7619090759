"""The brokers lose data under a worker that has nothing to do: it says so and ends, and the next one predicts what is there."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient

from benchmarks.load import vector_events
from millstream.consumers.errors import NEEDS_CHANGE
from tests.broker.choice import Broker
from tests.broker.clients import create_topic, produce, wait_until
from tests.broker.maven import MavenKafka, missing_for_maven
from tests.consumers.processes import Worker
from tests.consumers.service import id_of, vector_service

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.consumers.service import Service

pytestmark = [
    pytest.mark.durable,
    pytest.mark.skipif(missing_for_maven() is not None, reason="stops a broker of its own, which needs Java and Maven"),
]
EVENTS = 200
DELIVERIES = ["at_least_once", "exactly_once"]


class EmptyAgain(MavenKafka):
    """A broker that can lose all its data."""

    def come_back_empty(self, *, same_id: bool) -> None:
        """End the broker and start another one on its port, without data."""
        self.stop()
        port = int(self.bootstrap.rpartition(":")[2])
        super().__init__(port, self._cluster_id if same_id else None)
        self.start()


@contextmanager
def idle_worker(folder: Path, own: MavenKafka, delivery: str, restarts: int = 0) -> Iterator[tuple[Service, Worker]]:
    """A worker that has predicted and committed everything. Each restart of the broker before raises its partitions' epochs."""
    service = vector_service(folder, Broker(own.bootstrap, durable=True, kind="maven"), delivery=delivery)
    for _ in range(restarts):
        own.restart()
    with Worker(service.file) as worker:
        worker.wait_ready()
        send(service, 0, EVENTS)
        service.wait_committed()
        yield service, worker


def send(service: Service, first: int, last: int) -> None:
    load = vector_events(last, seed=31)
    produce(service.bootstrap, service.inputs[0], list(zip(load.keys, load.values, strict=True))[first:])


def delete_topic(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result()
    wait_until(lambda: topic not in admin.list_topics(timeout=10).topics, 60, "the topic to go")


def create_topics(service: Service, partitions: int = 4) -> None:
    for topic in (*service.inputs, service.output, service.letters):
        create_topic(service.bootstrap, topic, partitions, {})


def assert_next_worker_predicts(service: Service, first: int, last: int) -> None:
    """Assert that a new worker predicts these events, which are all that the input topic has, once each."""
    with Worker(service.file, "--until-idle") as successor:
        assert successor.wait(120) == 0
    found = Counter(map(id_of, service.predictions()))
    assert found == Counter(f"event-{number:010d}" for number in range(first, last))
    assert service.committed() == service.input_ends()


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("same_id", [False, True], ids=["another cluster", "same cluster ID"])
def test_cluster_that_comes_back_empty(tmp_path: Path, delivery: str, *, same_id: bool) -> None:
    with EmptyAgain() as own:
        with idle_worker(tmp_path, own, delivery) as (service, worker):
            own.come_back_empty(same_id=same_id)
            assert worker.wait(180) == 1
            assert ("is another cluster: it was" in worker.log) != same_id
            assert "input.start" in worker.log or "Create it: millstream topics create" in worker.log
            assert "Traceback" not in worker.log
        create_topics(service)
        send(service, EVENTS, 2 * EVENTS)
        assert_next_worker_predicts(service, EVENTS, 2 * EVENTS)


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_cluster_that_comes_back_with_empty_topics(tmp_path: Path, delivery: str) -> None:
    """Topics are there again at once, as if a script creates them. New events come before the worker has looked."""
    with EmptyAgain() as own:
        with idle_worker(tmp_path, own, delivery) as (service, worker):
            own.come_back_empty(same_id=False)
            create_topics(service)
            send(service, EVENTS, 2 * EVENTS)
            assert worker.wait(180) == 1
            assert "is another cluster: it was" in worker.log
            assert "Traceback" not in worker.log
            service.file.with_name("lost.log").write_text(worker.log)
        with Worker(service.file, "--until-idle") as successor:
            ended = successor.wait(120)
            # The old worker may have written under a producer ID that the new cluster gives out again. Then the broker refuses
            # the next worker's records, and the one after it goes on, as `millstream run` starts it.
            assert ended == 0 or (delivery == "at_least_once" and "A new worker goes on" in successor.log), (
                successor.log
            )
        if ended != 0:
            with Worker(service.file, "--until-idle") as another:
                assert another.wait(120) == 0
        found = Counter(map(id_of, service.predictions()))
        assert found.keys() == {f"event-{number:010d}" for number in range(EVENTS, 2 * EVENTS)}
        if delivery == "exactly_once":
            assert set(found.values()) == {1}
        assert service.committed() == service.input_ends()


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_input_topic_deleted_and_created_anew_with_fewer_partitions(tmp_path: Path, delivery: str) -> None:
    with EmptyAgain() as own:
        with idle_worker(tmp_path, own, delivery) as (service, worker):
            [topic] = service.inputs
            delete_topic(own.bootstrap, topic)
            create_topic(own.bootstrap, topic, 2, {})
            assert worker.wait(180) == 1
            assert "deleted and created anew" in worker.log
            assert "Traceback" not in worker.log
        send(service, EVENTS, 2 * EVENTS)
        with Worker(service.file, "--until-idle") as successor:
            assert successor.wait(120) == 0
        assert Counter(map(id_of, service.predictions())) == Counter(
            f"event-{number:010d}" for number in range(2 * EVENTS)
        )


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("more", [EVENTS // 2, 2 * EVENTS], ids=["below the old end", "beyond it"])
def test_input_topic_deleted_and_created_anew_on_a_cluster_of_some_age(
    tmp_path: Path, delivery: str, more: int
) -> None:
    """The new partitions have lower leader epochs than the old ones, for which the Kafka client fetches nothing from them.

    The group's offsets are gone, which the worker notices before it notices that.
    """
    with EmptyAgain() as own:
        with idle_worker(tmp_path, own, delivery, restarts=2) as (service, worker):
            [topic] = service.inputs
            delete_topic(own.bootstrap, topic)
            create_topic(own.bootstrap, topic, 4, {})
            send(service, EVENTS, EVENTS + more)
            assert worker.wait(180) == (NEEDS_CHANGE if delivery == "exactly_once" else 1)
            assert "deleted and created anew" in worker.log
            assert "Traceback" not in worker.log
        with Worker(service.file, "--until-idle") as successor:
            assert successor.wait(120) == 0
        assert Counter(map(id_of, service.predictions())) == Counter(
            f"event-{number:010d}" for number in range(EVENTS + more)
        )
