from __future__ import annotations

import pytest

from millstream.consumers.observability.lag_metrics import LagFollower, LagLook
from millstream.consumers.supervision.autoscaler import Autoscaler, Fleet, Status
from millstream.consumers.supervision.capacity import Counters
from millstream.consumers.supervision.reading import Reading, reading_of
from millstream.consumers.supervision.scaling import Policy
from millstream.topics.lag import PartitionLag

POLICY = Policy(min_workers=1, max_workers=4, catch_up=10, scale_down_after=20, in_flight=1000)
PARTITIONS = 4
RATE = 100.0  # events per busy second


class Pipeline:
    """A pipeline in simulated seconds: what its workers and its broker would say."""

    def __init__(self) -> None:
        self.autoscaler = Autoscaler(POLICY)
        self.now = 0.0
        self.size = 1
        self.slow = 1.0  # how much of `RATE` a worker does
        self._follower = LagFollower()
        self._arrived = 0.0
        self._done = [0.0] * POLICY.max_workers
        self._busy = [0.0] * POLICY.max_workers  # seconds
        self._pids = [1000 + number for number in range(POLICY.max_workers)]

    def second(self, arrival: float, *, broker: bool = True, ready: int | None = None, draining: int = 0) -> Status:
        self.now += 1
        self._arrived += arrival
        ready = self.size if ready is None else ready
        for number in range(ready):
            waiting = self._arrived - sum(self._done)
            work = min(RATE * self.slow, waiting / (ready - number))
            self._done[number] += work
            self._busy[number] += work / (RATE * self.slow)
        readings = {number: self._reading(number, ready) for number in range(self.size)}
        look = self._look() if broker else None
        status = self.autoscaler.step(self.now, Fleet(self.size, draining, readings), look)
        self.size = status.decision.workers
        return status

    def restart(self, number: int) -> None:
        """Another process takes the number, and counts from 0."""
        self._pids[number] += 1
        self._done[number] = self._busy[number] = 0.0
        self._arrived = sum(self._done)

    def _reading(self, number: int, ready: int) -> Reading:
        assigned = PARTITIONS // ready if number < ready else 0
        if number == 0:
            assigned += PARTITIONS % ready if ready else 0
        done = Counters(self._done[number], (self._busy[number], 0.0))
        return Reading(self.now, self._pids[number], number < ready, assigned, done, "")

    def _look(self) -> LagLook:
        start, end = int(sum(self._done) / PARTITIONS), int(self._arrived / PARTITIONS)
        age = 2.0 if end - start > RATE / PARTITIONS else 0.1
        lags = [PartitionLag("events", n, start, start, end, end - start, True, age, 0) for n in range(PARTITIONS)]
        return self._follower.look(self.now, lags)


def after_a_backlog() -> Pipeline:
    """One worker that has shown what it can do, and has nothing left to do."""
    pipeline = Pipeline()
    pipeline.second(500)
    for _ in range(8):
        pipeline.second(0)
    assert pipeline.size == 1
    return pipeline


def test_workers_follow_what_arrives() -> None:
    pipeline = after_a_backlog()
    for _ in range(20):
        pipeline.second(50)
    assert pipeline.size == 1
    status = pipeline.second(50)
    assert status.capacity == pytest.approx(RATE, rel=0.01)
    assert status.utilisation == pytest.approx(0.5, rel=0.1)
    assert status.done_rate == pytest.approx(50, rel=0.1)
    for _ in range(20):
        pipeline.second(250)
    assert pipeline.size == 4
    for _ in range(60):
        pipeline.second(50)
    assert pipeline.size == 1


def test_nothing_is_decided_before_a_backlog_has_shown_what_a_worker_can_do() -> None:
    pipeline = Pipeline()
    for _ in range(30):
        status = pipeline.second(90)
        assert (status.decision.action, status.capacity) in {("unknown", None), ("settling", None)}
    for _ in range(10):
        status = pipeline.second(150)
    assert status.capacity == pytest.approx(RATE, rel=0.01)
    assert pipeline.size > 1


def test_first_second_of_a_backlog_brings_no_worker() -> None:
    """A worker that has just begun, on a machine that is busy, does much less than it can; by that alone a second would come."""
    pipeline = Pipeline()
    for _ in range(4):
        pipeline.second(50, ready=0)
    pipeline.slow = 0.6
    assert pipeline.second(50).decision.action == "unknown"
    pipeline.slow = 1.0
    status = pipeline.second(50)
    assert status.decision.action == "hold"
    assert status.capacity == pytest.approx(0.8 * RATE)
    for _ in range(10):
        assert pipeline.second(50).decision.workers == 1


def test_nothing_is_decided_while_the_broker_is_away() -> None:
    pipeline = after_a_backlog()
    for _ in range(40):
        status = pipeline.second(300, broker=False)
        assert (status.decision.action, status.decision.workers) == ("unknown", 1)
        assert status.lag is None


def test_nothing_is_decided_while_a_worker_starts_or_drains() -> None:
    pipeline = Pipeline()
    pipeline.size = 2
    for _ in range(10):
        assert pipeline.second(300, ready=1).decision.action == "settling"
    assert pipeline.second(300, draining=1).decision.action == "settling"
    for _ in range(5):
        pipeline.second(300)
    assert pipeline.size == 4


def test_restarted_worker_does_not_unsettle_the_rate() -> None:
    pipeline = after_a_backlog()
    pipeline.restart(0)
    for _ in range(5):
        status = pipeline.second(50)
    assert status.capacity == pytest.approx(RATE, rel=0.01)


def test_reading_is_what_the_metrics_say() -> None:
    text = """\
# HELP millstream_ready x
millstream_ready{pipeline="p"} 1.0
millstream_assigned_partitions{pipeline="p"} 3.0
millstream_predictions_total{model="m",pipeline="p",variant="a",version="1"} 40.0
millstream_predictions_total{model="m",pipeline="p",variant="b",version="2"} 2.0
millstream_dead_letters_total{pipeline="p",reason="unfit"} 1.0
millstream_stage_seconds_sum{pipeline="p",stage="infer"} 2.5
millstream_stage_seconds_sum{pipeline="p",stage="poll"} 100.0
millstream_stage_seconds_sum{pipeline="p",stage="commit"} 0.5
"""
    assert reading_of(text, 7.0, 99) == Reading(7.0, 99, True, 3, Counters(43.0, (2.5, 0.5)), text)
