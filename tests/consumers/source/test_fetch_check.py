"""A client that fetches nothing, though brokers have records for it: the worker ends. One that is slow or has nothing goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
from confluent_kafka import Consumer, KafkaError

from millstream.consumers.errors import WorkerError
from millstream.consumers.observability.health import Health
from millstream.consumers.source.fetch_check import ASK_INTERVAL, PATIENCE, FetchCheck
from tests.consumers.source.fake_consumer import FakeConsumer, failure

if TYPE_CHECKING:
    from collections.abc import Collection

A, B = ("in", 0), ("in", 1)


class Idle:
    """A consumer of two partitions that has read all of their 7 and 9 records, and polls in vain from now on."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.consumer = FakeConsumer({A: 7, B: 9})
        self.consumer.positions = {A: 7, B: 9}
        self.health = Health(60)
        self.check = FetchCheck(cast("Consumer", self.consumer), self.health, clock=lambda: self.now)
        self.check.fetched()

    def poll(self, seconds: float, paused: Collection[str] = ()) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now += 1
            self.check.look([A, B], paused)


def test_client_that_has_everything_is_asked_now_and_then() -> None:
    idle = Idle()
    idle.poll(10 * PATIENCE)
    assert idle.consumer.calls.count("offsets_for_times") == 10 * PATIENCE / ASK_INTERVAL


@pytest.mark.parametrize("end", [8, 20, 0, 3], ids=["one more", "many more", "an empty topic", "fewer"])
def test_client_that_does_not_learn_a_new_end_ends_the_worker(end: int) -> None:
    idle = Idle()
    idle.consumer.fetched_ends[A] = 7
    idle.consumer.logs[A] = end
    with pytest.raises(WorkerError, match=r"fetched nothing from in/0 for 30 s.*created anew"):
        idle.poll(2 * PATIENCE)


def test_client_that_has_never_fetched_ends_the_worker() -> None:
    idle = Idle()
    idle.consumer.positions = {A: 7}
    with pytest.raises(WorkerError, match="in/1"):
        idle.poll(2 * PATIENCE)


def test_client_that_learns_ends_without_records_goes_on() -> None:
    """Ends of transactions have offsets, and are no records."""
    idle = Idle()
    for end in range(7, 20):
        idle.consumer.fetched_ends[A], idle.consumer.logs[A] = end, end + 1
        idle.poll(PATIENCE - ASK_INTERVAL)


def test_open_transaction_of_a_producer_is_no_sign() -> None:
    """Readers of committed records get the end before it, but learn of what lies behind."""
    idle = Idle()
    idle.consumer.fetched_ends[A] = 12
    idle.poll(10 * PATIENCE)


def test_records_begin_the_time_anew() -> None:
    idle = Idle()
    idle.consumer.fetched_ends[A], idle.consumer.logs[A] = 7, 8
    for _ in range(5):
        idle.poll(PATIENCE)
        idle.check.fetched()


def test_paused_topics_are_left_out() -> None:
    idle = Idle()
    idle.consumer.fetched_ends[A], idle.consumer.logs[A] = 7, 8
    idle.poll(10 * PATIENCE, paused={"in"})


def test_time_without_brokers_does_not_count() -> None:
    idle = Idle()
    idle.consumer.fetched_ends[A], idle.consumer.logs[A] = 7, 8
    idle.poll(PATIENCE - ASK_INTERVAL)
    idle.health.broker_away = "no broker answers"
    idle.poll(PATIENCE)
    idle.health.broker_away = None
    idle.consumer.next_failures["offsets_for_times"] = [failure(KafkaError._TIMED_OUT)]
    idle.poll(PATIENCE)
    assert idle.consumer.next_failures["offsets_for_times"] == []
