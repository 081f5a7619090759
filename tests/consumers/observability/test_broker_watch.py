"""What the log and `/ready` say of a broker that is away: little, and all that a reader needs."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

import pytest

from millstream.consumers.observability import broker_watch as module
from millstream.consumers.observability.broker_watch import BrokerWatch
from millstream.consumers.observability.health import Health

if TYPE_CHECKING:
    from collections.abc import Callable

REFUSED = "b:9092: Connection refused"


class Broker:
    """Gives these answers, and then that it is there. Each question takes half a minute."""

    def __init__(self, *answers: str | None, asked: Callable[[], object] = lambda: None) -> None:
        self.answers = list(answers)
        self.now = 1000.0
        self.lost: str | None = None  # what the cluster has lost
        self._asked = asked

    def change(self) -> str | None:
        return self.lost

    def silent(self, timeout: float) -> str | None:  # noqa: ARG002
        self._asked()
        self.now += 30
        return self.answers.pop(0) if self.answers else None


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_INTERVAL", 0.0)
    monkeypatch.setattr(module, "SETTLE_TIME", 0.0)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_outage_is_a_line_at_its_start_one_a_minute_and_one_at_its_end(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker(*[REFUSED] * 6)
    watch = BrokerWatch("b:9092", broker, Health(60), clock=lambda: broker.now)
    watch.suspect(REFUSED)
    watch.look()
    assert lines(caplog) == [
        f"Kafka at b:9092 does not answer; waiting, nothing is lost ({REFUSED})",
        f"Kafka at b:9092 does not answer since 1 min 30 s; still waiting ({REFUSED})",
        f"Kafka at b:9092 does not answer since 2 min 30 s; still waiting ({REFUSED})",
        "Kafka at b:9092 answers again, after 3 min 30 s",
    ]


def test_worker_is_not_ready_while_the_broker_is_away_and_says_why() -> None:
    health = Health(60)
    health.ready = True
    seen: list[tuple[bool, str]] = []
    broker = Broker(REFUSED, REFUSED, asked=lambda: seen.append(health.readiness()))
    BrokerWatch("b:9092", broker, health, clock=lambda: broker.now).look()
    assert seen == [(True, "ready"), *[(False, f"not ready: Kafka at b:9092 does not answer ({REFUSED})")] * 2]
    assert health.readiness() == (True, "ready")


def test_lost_connections_to_a_broker_that_answers_are_a_warning_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker()
    watch = BrokerWatch("b:9092", broker, Health(60), clock=lambda: broker.now)
    for _ in range(3):
        watch.suspect("Disconnected")
        watch.look()
    assert lines(caplog) == [
        "1 connection to Kafka failed, while a broker answers, such as: Disconnected",
        "2 connections to Kafka failed, while a broker answers, such as: Disconnected",
    ]


def test_errors_of_an_outage_that_clients_report_late_are_no_new_losses(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LATE_ERRORS", 100.0)  # three questions to this broker
    broker = Broker(REFUSED)
    watch = BrokerWatch("b:9092", broker, Health(60), clock=lambda: broker.now)
    watch.look()
    for _ in range(4):
        watch.suspect(REFUSED)
        watch.look()
    assert [line for line in lines(caplog) if "failed, while" in line] == [
        f"1 connection to Kafka failed, while a broker answers, such as: {REFUSED}"
    ]


def test_thread_asks_when_a_client_has_lost_the_broker_and_ends_with_its_context() -> None:
    asked = threading.Event()
    broker = Broker(asked=asked.set)
    with BrokerWatch("b:9092", broker, Health(60), every=1000) as watch:
        assert asked.wait(10), "it asks at its start"
        asked.clear()
        watch.suspect(REFUSED)
        assert asked.wait(10)


def test_thread_asks_by_itself_if_no_client_reports(caplog: pytest.LogCaptureFixture) -> None:
    asked = threading.Semaphore(0)
    broker = Broker(asked=asked.release)
    with BrokerWatch("b:9092", broker, Health(60), every=0.01):
        assert asked.acquire(timeout=10)
        assert asked.acquire(timeout=10)
    assert not lines(caplog)


def test_data_that_a_cluster_has_lost_are_told_once_it_answers() -> None:
    told: list[str] = []
    broker = Broker(REFUSED)
    watch = BrokerWatch("b:9092", broker, Health(60), on_change=told.append, clock=lambda: broker.now)
    watch.look()
    assert told == []
    broker.lost = "it is another cluster"
    watch.look()
    assert told == ["it is another cluster"]
