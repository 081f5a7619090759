"""A consumer whose client has forgotten all brokers: it is reminded of them, and the worker ends if that does not help."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
from confluent_kafka import Consumer, KafkaError

from millstream.consumers.client_handle import refusal
from millstream.consumers.errors import WorkerError
from millstream.consumers.observability.health import Health
from millstream.consumers.source.lost_brokers import GIVE_UP_AFTER, REMIND_AFTER, LostBrokers, reminder
from tests.consumers.source.fake_consumer import FakeConsumer, failure

if TYPE_CHECKING:
    from tests.broker.choice import Broker


class Asking:
    """A consumer that does not find a broker as long as the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.consumer = FakeConsumer({})
        self.health = Health(60)
        self.health.connections_lost = True
        self.reminded = 0
        self._lost = LostBrokers(
            cast("Consumer", self.consumer), "in", self.health, self.remind, clock=lambda: self.now
        )

    def remind(self) -> None:
        self.reminded += 1

    def look(self, *, finds: bool) -> None:
        self.consumer.next_failures["list_topics"] = [] if finds else [failure(KafkaError._TRANSPORT, "no broker")]
        self._lost.look()

    def search(self, seconds: float) -> None:
        """Look every half a second, in vain."""
        until = self.now + seconds
        while self.now < until:
            self.look(finds=False)
            self.now += 0.5


def test_consumer_that_finds_a_broker_is_asked_once() -> None:
    asking = Asking()
    for _ in range(5):
        asking.look(finds=True)
        asking.now += 1
    assert asking.consumer.calls.count("list_topics") == 1
    assert not asking.health.connections_lost


def test_consumer_is_not_asked_as_long_as_no_connection_was_lost() -> None:
    asking = Asking()
    asking.health.connections_lost = False
    asking.look(finds=True)
    assert asking.consumer.calls == []


def test_consumer_that_finds_no_broker_is_reminded_and_then_the_worker_ends() -> None:
    asking = Asking()
    asking.search(REMIND_AFTER)
    assert asking.reminded == 0, "most clients find a broker by themselves"
    asking.search(REMIND_AFTER + 2)
    assert asking.reminded == 2
    with pytest.raises(WorkerError, match=r"(?s)Kafka answers again, but .* not found it for 30 s .*Nothing is lost"):
        asking.search(GIVE_UP_AFTER)


def test_reminded_consumer_that_finds_a_broker_works_on() -> None:
    asking = Asking()
    asking.search(REMIND_AFTER + 2)
    asking.now += 1
    asking.look(finds=True)
    asking.search(GIVE_UP_AFTER + 10)
    assert not asking.health.connections_lost


def test_time_begins_anew_if_no_broker_answers_anybody() -> None:
    asking = Asking()
    asking.search(GIVE_UP_AFTER - 1)
    asking.health.broker_away = "away"
    asking.search(100)
    asking.health.broker_away = None
    asking.search(GIVE_UP_AFTER - 1)


@pytest.mark.skipif(refusal() is not None, reason="native parts are not used")
def test_reminder_gives_the_client_brokers_that_it_did_not_know(kafka: Broker) -> None:
    def error_cb(_error: KafkaError) -> None:
        pass

    settings = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "error_cb": error_cb, "log_level": 0}
    consumer = Consumer(settings)
    remind = reminder(consumer, error_cb, kafka.bootstrap)
    remind()
    assert consumer.list_topics(timeout=20).brokers
    consumer.close()
    remind()  # harmless
