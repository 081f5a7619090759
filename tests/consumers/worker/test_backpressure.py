"""Whether the loop may poll: there is room, or its partitions are paused and it polls to stay a member."""

from __future__ import annotations

import threading
from typing import cast

import pytest

from millstream.consumers.batch.batcher import Limits
from millstream.consumers.flow.in_flight import RecordCost
from millstream.consumers.observability.health import Health
from millstream.consumers.observability.metrics import Metrics
from millstream.consumers.source.crashes import CrashGuard
from millstream.consumers.source.kafka_source import Source
from millstream.consumers.worker import backpressure
from millstream.consumers.worker.backpressure import PAUSE_AFTER, Backpressure
from millstream.consumers.worker.shared import Settings, shared_of
from tests.consumers.clock import Clock

EVENTS = 80  # that the worker may hold
ALL, NONE = frozenset({"in", "other"}), frozenset[str]()


class PausableSource:
    """Notes which topics are paused."""

    topics = ALL

    def __init__(self) -> None:
        self.paused = NONE

    def pause(self, topics: frozenset[str]) -> None:
        self.paused = topics


class NotingEvent(threading.Event):
    """Counts how often it is waited for."""

    waits = 0

    def wait(self, timeout: float | None = None) -> bool:
        self.waits += 1
        return super().wait(timeout)


class Loop:
    """The backpressure of a worker, with what it looks at and a clock that a test moves on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, weights: dict[str, float] | None = None) -> None:
        self.clock = Clock(monkeypatch, backpressure)
        monkeypatch.setattr(backpressure, "POLL_INTERVAL", 0.001)
        settings = Settings(
            batch=Limits(1, 1000, 0.0),
            in_flight_events=EVENTS,
            in_flight_bytes=1_000_000,
            weight=RecordCost(1, 0),
            commit_every=1.0,
            exactly_once=True,
            ordering="partition",
            weights=weights,
            allow_nan_outputs=False,
            batch_timeout=1.0,
            drain_timeout=1.0,
            until_idle=False,
        )
        self.health = Health(60)
        shared = shared_of(settings, CrashGuard(3, 100), self.health, Metrics("p"))
        self.budget, self.quotas = shared.budget, shared.quotas
        self.stopping = shared.ending.stopping = NotingEvent()
        self.source = PausableSource()
        self.backpressure = Backpressure(cast("Source", self.source), shared)

    def fill(self) -> None:
        self.budget.add(EVENTS, EVENTS, 0.0)

    def may_poll_after(self, seconds: float) -> bool:
        self.clock.now += seconds
        return self.backpressure.may_poll()


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    return Loop(monkeypatch)


def test_with_room_all_is_read(loop: Loop) -> None:
    assert loop.backpressure.may_poll()
    assert loop.source.paused == NONE


def test_short_wait_for_room_pauses_nothing_and_a_long_one_all(loop: Loop) -> None:
    loop.fill()
    assert not loop.may_poll_after(0)
    assert not loop.may_poll_after(PAUSE_AFTER - 0.1)
    assert loop.source.paused == NONE
    assert loop.may_poll_after(0.1), "to stay a member of the group"
    assert loop.source.paused == ALL


def test_paused_partitions_are_read_again_from_half_of_the_limits_down(loop: Loop) -> None:
    loop.fill()
    loop.may_poll_after(0)
    loop.may_poll_after(PAUSE_AFTER)
    loop.budget.release(EVENTS // 2 - 1, 0)
    assert loop.may_poll_after(0)
    assert loop.source.paused == ALL
    loop.budget.release(1, 0)
    assert loop.may_poll_after(0)
    assert loop.source.paused == NONE
    loop.fill()
    assert not loop.may_poll_after(0), "nothing is paused any more"


def test_each_wait_for_room_is_measured_from_its_own_beginning(loop: Loop) -> None:
    loop.fill()
    assert not loop.may_poll_after(0)
    loop.budget.release(EVENTS, 0)
    assert loop.may_poll_after(PAUSE_AFTER)
    loop.fill()
    assert not loop.may_poll_after(0)
    assert loop.source.paused == NONE


def test_during_an_outage_nothing_is_read_whatever_room_there_is(loop: Loop) -> None:
    loop.health.away("schemas", "the registry does not answer")
    assert not loop.may_poll_after(0)
    assert loop.stopping.waits == 1, "the loop does not spin, and is told at once when to stop"
    assert loop.may_poll_after(PAUSE_AFTER)
    assert loop.source.paused == ALL
    loop.health.back("schemas")
    assert loop.may_poll_after(0)
    assert loop.source.paused == NONE


def test_outage_of_a_server_lets_the_worker_read_on_to_the_limit(loop: Loop) -> None:
    """Requests wait on an event loop: an event that always fails must not hold up those of other partitions."""
    loop.health.away("executor", "a server is away", stops_reading=False)
    assert loop.may_poll_after(PAUSE_AFTER)
    assert loop.source.paused == NONE
    loop.fill()
    assert not loop.may_poll_after(0)
    assert loop.may_poll_after(PAUSE_AFTER)
    assert loop.source.paused == ALL


def test_topic_that_has_its_share_is_paused_while_the_others_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(monkeypatch, weights={"in": 3.0, "other": 1.0})
    assert loop.quotas is not None
    loop.quotas.add("other", EVENTS // 8)
    assert loop.backpressure.may_poll()
    assert loop.source.paused == {"other"}
    loop.quotas.remove("other", EVENTS // 8)
    assert loop.backpressure.may_poll()
    assert loop.source.paused == NONE


def test_loop_may_pause_all_by_itself_and_read_on(loop: Loop) -> None:
    loop.backpressure.pause()
    assert loop.source.paused == ALL
    loop.backpressure.resume()
    assert loop.source.paused == NONE
    loop.fill()
    assert not loop.may_poll_after(0), "nothing is paused any more"
