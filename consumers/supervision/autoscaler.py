"""Turns the workers' metrics and the lag into the scaling decision, and keeps the decision's memory. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millstream.consumers.errors import NEEDS_CHANGE
from millstream.consumers.observability.lag_metrics import LagLook
from millstream.consumers.supervision.capacity import CapacityEstimate, Counters, Work, work_between
from millstream.consumers.supervision.reading import Reading
from millstream.consumers.supervision.scaling import Decision, Memory, Observation, PartitionLoad, Policy, decide
from millstream.topics.lag_trend import MIN_BACKLOG_SECONDS

MAX_STALLED_SECONDS = 3.0  # after this many seconds without progress, a partition's backlog doesn't count


@dataclass(frozen=True, slots=True)
class Fleet:
    """The workers' current state."""

    size: int  # workers that should run
    draining: int  # workers that were told to end and still drain
    readings: Mapping[int, Reading]  # by worker number; of the workers that respond
    given_up: Sequence[int] = ()  # numbers of workers that should run, but would end again with the same error


@dataclass(frozen=True, slots=True)
class Status:
    """What `millstream run` reports once a second."""

    decision: Decision
    fleet: Fleet
    ready: int  # workers that are ready
    lag: LagLook | None  # None: not known
    done_rate: float  # events per second that all workers together process
    capacity: float | None  # events per busy second of one worker
    utilisation: float  # share of their time during which the workers were busy
    trend_known_for: float  # seconds since when a worker has been ready and the lag known, without a break

    @property
    def reason(self) -> str:
        """The decision's reason, and why fewer workers run than should."""
        gone = [
            f"; worker {number} was given up: exit code {NEEDS_CHANGE}, see its last log lines"
            for number in self.fleet.given_up
        ]
        return f"{self.decision.reason}{''.join(gone)}"


class Autoscaler:
    """Makes the scaling decisions of one pipeline."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._memory = Memory()
        self._estimate = CapacityEstimate()
        self._before: dict[int, tuple[int, float, Counters]] = {}  # by worker number: pid, when, counters
        self._done_rate = 0.0
        self._trend_known_since: float | None = None

    def step(self, now: float, fleet: Fleet, lag: LagLook | None) -> Status:
        """Take new readings at time `now` (seconds); returns the decision and its inputs."""
        self._measure(fleet.readings, behind=lag is not None and _behind(lag))
        ready = sum(reading.ready for reading in fleet.readings.values())
        seen = Observation(
            time=now,
            workers=fleet.size,
            settled=lag is not None and _settled(fleet, ready, len(lag.lags)),
            capacity=self._estimate.learnt,
            partitions=None if lag is None else _loads(lag),
        )
        if lag is None:  # without the lag, the decision is "unknown", not "settling"
            seen = Observation(now, fleet.size, settled=True, capacity=seen.capacity, partitions=None)
        decision, self._memory = decide(self._policy, self._memory, seen)
        return Status(
            decision,
            fleet,
            ready,
            lag,
            self._done_rate if ready else 0.0,
            seen.capacity,
            self._estimate.utilisation,
            self._trend_known_for(now, known=ready > 0 and lag is not None),
        )

    def _trend_known_for(self, now: float, *, known: bool) -> float:
        if not known:
            self._trend_known_since = None
        elif self._trend_known_since is None:
            self._trend_known_since = now
        return 0.0 if self._trend_known_since is None else now - self._trend_known_since

    def _measure(self, readings: Mapping[int, Reading], *, behind: bool) -> None:
        """Update the capacity estimate with what each worker did since its last reading."""
        works: dict[int, Work] = {}
        new = False
        for number, reading in readings.items():
            before = self._before.get(number)
            self._before[number] = (reading.pid, reading.at, reading.counters)
            if before is None or before[0] != reading.pid or reading.at <= before[1]:
                continue
            new = True
            work = work_between(before[2], reading.counters, reading.at - before[1])
            if work is not None and reading.ready:
                works[number] = work
        for gone in self._before.keys() - readings.keys():
            del self._before[gone]
        if new:
            self._estimate.add(works, behind=behind)
            self._done_rate = sum(work.events / work.seconds for work in works.values())


def _behind(lag: LagLook) -> bool:
    """Whether events wait in a partition that makes progress. A partition without progress doesn't show what a worker can do."""
    return any(
        (entry.seconds or 0.0) >= MIN_BACKLOG_SECONDS and trend is not None and trend.stalled < MAX_STALLED_SECONDS
        for entry in lag.lags
        for trend in (lag.trends.get((entry.topic, entry.partition)),)
    )


def _settled(fleet: Fleet, ready: int, partitions: int) -> bool:
    """Whether all workers that should run are ready, and share all partitions."""
    assigned = sum(reading.assigned for reading in fleet.readings.values())
    return not fleet.draining and ready >= fleet.size and assigned >= partitions


def _loads(lag: LagLook) -> tuple[PartitionLoad, ...] | None:
    """Each partition's load; None until the lag was measured twice."""
    if lag.total is None:
        return None
    trends = [lag.trends[entry.topic, entry.partition] for entry in lag.lags]
    return tuple(
        PartitionLoad(trend.arrival, entry.messages, trend.stalled, trend.progress)
        for entry, trend in zip(lag.lags, trends, strict=True)
    )
