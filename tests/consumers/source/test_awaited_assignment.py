"""A member that the group assigns nothing to: the log and `/ready` say so, with the reason, until an assignment comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.consumers.observability.broker_watch import LOG_INTERVAL
from millstream.consumers.observability.health import Health
from millstream.consumers.source.awaited_assignment import WARN_AFTER, AwaitedAssignment

if TYPE_CHECKING:
    from collections.abc import Sequence


class Waiting:
    """A member whose worker looks once a second."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.now = 1000.0
        self.error: str | None = None  # the coordinator's
        self.asked = 0
        self.health = Health(60)
        self.health.ready = True
        self._log = caplog
        self.assignment = AwaitedAssignment("g", self.ask, self.health, clock=lambda: self.now)
        self.assignment.begin()

    def ask(self) -> str | None:
        self.asked += 1
        return self.error

    def wait(self, seconds: float) -> Sequence[str]:
        """Returns what is logged meanwhile."""
        self._log.clear()
        until = self.now + seconds
        while self.now < until:
            self.now += 1
            self.assignment.look()
        return self._log.messages


@pytest.fixture
def waiting(caplog: pytest.LogCaptureFixture) -> Waiting:
    return Waiting(caplog)


def test_member_that_the_group_removed_is_not_ready_until_the_next_assignment(waiting: Waiting) -> None:
    waiting.assignment.end()
    assert waiting.health.readiness() == (True, "ready")
    waiting.assignment.lost()
    assert waiting.health.readiness() == (False, "not ready: the group g has removed this worker, which joins again")
    assert not waiting.health.stops_reading
    waiting.assignment.end()
    assert waiting.health.readiness() == (True, "ready")


def test_coordinator_that_does_not_answer_is_reported_at_once_and_every_minute(waiting: Waiting) -> None:
    waiting.error = "Broker: Not coordinator"
    assert waiting.wait(WARN_AFTER - 1) == []
    [first] = waiting.wait(1)
    assert first.startswith("the group g has assigned nothing for 30 s: a broker answers, but the group's coordinator")
    assert "(Broker: Not coordinator). Look into the broker's log." in first
    assert waiting.wait(LOG_INTERVAL - 1) == []
    [second, third] = waiting.wait(LOG_INTERVAL + 1)
    assert second.startswith("the group g has assigned nothing for 1 min 30 s: ")
    assert third.startswith("the group g has assigned nothing for 2 min 30 s: ")


def test_coordinator_that_answers_waits_for_another_member(waiting: Waiting) -> None:
    [said] = waiting.wait(WARN_AFTER)
    assert "its coordinator answers, so another member probably delays the rebalance" in said


def test_assignment_that_came_late_is_one_line_and_the_worker_is_ready_again(
    waiting: Waiting, caplog: pytest.LogCaptureFixture
) -> None:
    waiting.wait(WARN_AFTER)
    ready, why = waiting.health.readiness()
    assert not ready
    assert why.startswith("not ready: the group g has assigned nothing: its coordinator answers")
    assert not waiting.health.stops_reading, "the worker must poll, to join the group"
    waiting.now += 100
    caplog.clear()
    waiting.assignment.end()
    assert caplog.messages == ["the group g has made an assignment, after 2 min 10 s"]
    assert waiting.health.readiness() == (True, "ready")
    assert waiting.wait(1000) == []


def test_assignment_that_came_in_time_is_no_line(waiting: Waiting, caplog: pytest.LogCaptureFixture) -> None:
    waiting.wait(WARN_AFTER - 1)
    waiting.assignment.end()
    assert caplog.messages == []
    waiting.assignment.begin()
    assert waiting.wait(WARN_AFTER - 1) == [], "the time begins anew"


def test_time_in_which_no_broker_answers_does_not_count(waiting: Waiting) -> None:
    waiting.health.broker_away = "away"
    assert waiting.wait(500) == []
    assert waiting.asked == 0
    waiting.health.broker_away = None
    assert waiting.wait(WARN_AFTER - 1) == []
    [said] = waiting.wait(1)
    assert "for 30 s" in said
