"""From what workers and broker say to the scaling decision: keeps what the decision needs to remember. Asks nobody itself."""

from collections.abc import Mapping
from dataclasses import dataclass

from millstream.consumers.observability.lag_metrics import LagLook
from millstream.consumers.supervision.capacity import CapacityEstimate, Counters, Work, work_between
from millstream.consumers.supervision.reading import Reading
from millstream.consumers.supervision.scaling import Decision, Memory, Observation, PartitionLoad, Policy, decide

MIN_BACKLOG_SECONDS = 1.0  # seconds of lag from which events wait for workers, and not only for the next commit
MAX_STALLED_SECONDS = 3.0  # seconds without a commit


@dataclass(frozen=True, slots=True)
class Fleet:
    """The workers at a moment."""

    size: int  # that are meant to run
    draining: int  # that were told to go and have not gone yet
    readings: Mapping[int, Reading]  # by worker number, of those that answer


@dataclass(frozen=True, slots=True)
class Status:
    """What there is to tell, once a second."""

    decision: Decision
    fleet: Fleet
    ready: int  # workers
    lag: LagLook | None  # None: not known
    done_rate: float  # events a second that all workers do
    capacity: float | None  # events per busy second of one worker
    utilisation: float  # share of their time that they were busy


class Autoscaler:
    """Decides for one pipeline."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._memory = Memory()
        self._estimate = CapacityEstimate()
        self._before: dict[int, tuple[int, float, Counters]] = {}  # by worker number: pid, when, counters
        self._done_rate = 0.0

    def step(self, now: float, fleet: Fleet, lag: LagLook | None) -> Status:
        """The decision for second `now`."""
        self._measure(fleet.readings, behind=lag is not None and _behind(lag))
        ready = sum(reading.ready for reading in fleet.readings.values())
        seen = Observation(
            time=now,
            workers=fleet.size,
            settled=lag is not None and _settled(fleet, ready, len(lag.lags)),
            capacity=self._estimate.learnt,
            partitions=None if lag is None else _loads(lag),
        )
        if lag is None:  # nothing to tell whether it has settled: that is not known rather than settling
            seen = Observation(now, fleet.size, settled=True, capacity=seen.capacity, partitions=None)
        decision, self._memory = decide(self._policy, self._memory, seen)
        return Status(decision, fleet, ready, lag, self._done_rate, seen.capacity, self._estimate.utilisation)

    def _measure(self, readings: Mapping[int, Reading], *, behind: bool) -> None:
        """Learn from what each worker did since its last reading."""
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
    """Whether events wait for workers that work: those of a partition that stands still say nothing of what a worker can do."""
    return any(
        (entry.seconds or 0.0) >= MIN_BACKLOG_SECONDS and trend is not None and trend.stalled < MAX_STALLED_SECONDS
        for entry in lag.lags
        for trend in (lag.trends.get((entry.topic, entry.partition)),)
    )


def _settled(fleet: Fleet, ready: int, partitions: int) -> bool:
    """Whether the workers that are meant to run are ready and share all partitions."""
    assigned = sum(reading.assigned for reading in fleet.readings.values())
    return not fleet.draining and ready >= fleet.size and assigned >= partitions


def _loads(lag: LagLook) -> tuple[PartitionLoad, ...] | None:
    """Each partition's load; None until the lag was looked at twice."""
    if lag.total is None:
        return None
    trends = [lag.trends[entry.topic, entry.partition] for entry in lag.lags]
    return tuple(
        PartitionLoad(trend.arrival, entry.messages, trend.stalled)
        for entry, trend in zip(lag.lags, trends, strict=True)
    )
