"""Simulates a pipeline under load, to compare scaling policies: partitions, workers that start and rebalance, and lag."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

import numpy as np
import numpy.typing as npt

from millstream.consumers.supervision.scaling import Memory, Observation, PartitionLoad, Policy, decide
from millstream.topics.lag_trend import WINDOW_SECONDS

Rates = npt.NDArray[np.float64]
ARRIVAL_WINDOW = int(WINDOW_SECONDS)  # seconds


@dataclass(frozen=True, slots=True)
class World:
    """The simulated pipeline; times are in seconds."""

    rate: float = 1000.0  # events/s of one worker
    partitions: int = 12
    start: int = 8  # time from a worker's start until it joins the group
    pause: int = 3  # time for which no worker processes events when members come or go
    noise: float = 0.05  # standard deviation of the arrivals and of the measured rate
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Load:
    """The arriving events."""

    name: str
    about: str
    seconds: int
    arrivals: Callable[[int], Rates]  # second -> events/s of each partition
    stuck: Callable[[int], int | None] = field(default=lambda _: None)  # second -> partition that makes no progress


@dataclass(frozen=True, slots=True)
class Look:
    """The information that a scaler gets."""

    time: int
    workers: int  # that are meant to run
    settled: bool
    rate: float | None
    arrivals: Rates  # events/s, over a window
    backlog: Rates
    stalled: Rates  # seconds without progress
    progress: Rates  # events/s that workers finish


class Scaler(Protocol):
    """Decides how many workers there should be."""

    def __call__(self, look: Look) -> int: ...  # noqa: D102


class Ours:
    """Calls `consumers.supervision.scaling.decide` every second."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._memory = Memory()

    def __call__(self, look: Look) -> int:
        """See `Scaler`."""
        loads = tuple(
            PartitionLoad(*map(float, partition))
            for partition in zip(look.arrivals, look.backlog, look.stalled, look.progress, strict=True)
        )
        seen = Observation(look.time, look.workers, look.settled, look.rate, loads)
        decision, self._memory = decide(self._policy, self._memory, seen)
        return decision.workers


class LagThreshold:
    """KEDA's Kafka scaler with its defaults: replicas = total lag / `lagThreshold`, at most one per partition.

    Kubernetes' autoscaler applies them: it decides every 15 s, with 10 % tolerance. Within 15 s, it at most doubles the number or
    adds 4. It goes down only to the maximum of the last 300 s.
    """

    def __init__(self, policy: Policy, threshold: float, down_after: float = 300.0) -> None:
        self._policy = policy
        self._threshold = threshold
        self._down_after = down_after
        self._wanted: deque[tuple[int, int]] = deque()

    def __call__(self, look: Look) -> int:
        """See `Scaler`."""
        if look.time % 15:
            return look.workers
        ratio = float(look.backlog.sum()) / self._threshold / look.workers
        wanted = look.workers if abs(ratio - 1) <= 0.1 else math.ceil(ratio * look.workers)
        wanted = min(max(wanted, self._policy.min_workers), self._policy.max_workers, len(look.backlog))
        self._wanted.append((look.time, wanted))
        while self._wanted[0][0] <= look.time - self._down_after:
            self._wanted.popleft()
        if wanted > look.workers:
            return min(wanted, max(2 * look.workers, look.workers + 4))
        return min(look.workers, max(n for _, n in self._wanted))


@dataclass(frozen=True, slots=True)
class Run:
    """The result of a simulation, second by second."""

    workers: list[int]  # that are meant to run
    arrivals: list[float]  # events/s over all partitions
    lag_seconds: list[float]  # age of the oldest event, without stuck partitions

    def over(self, seconds: float) -> int:
        """For how many seconds the oldest event was older than this."""
        return sum(lag > seconds for lag in self.lag_seconds)

    @property
    def worst(self) -> float:
        """The highest age of the oldest event, seconds."""
        return max(self.lag_seconds)

    @property
    def worker_minutes(self) -> float:
        """The number of workers, summed over the minutes."""
        return sum(self.workers) / 60

    @property
    def rebalances(self) -> int:
        """How often the number of workers changed."""
        return sum(before != after for before, after in pairwise(self.workers))


class Simulation:
    """Simulates one pipeline in steps of a second."""

    def __init__(self, world: World, load: Load) -> None:
        self._world = world
        self._load = load
        self._random = np.random.default_rng(world.seed)
        self._arrived: list[Rates] = [np.zeros(world.partitions)]  # sums, by second
        self._done = np.zeros(world.partitions)
        self._done_before = self._done  # a second ago
        self._moved = np.zeros(world.partitions)
        self._oldest = [0] * world.partitions  # second in which the oldest waiting event arrived
        self._ready = 1
        self._starting: list[int] = []  # when each starting worker is ready
        self._paused_until = 0
        self._rate: float | None = None

    def run(self, scaler: Scaler) -> Run:
        """Run the whole load with this scaler, starting with one worker."""
        run = Run([], [], [])
        workers = 1
        for now in range(self._load.seconds):
            self._members(now, workers)
            arrivals = self._arrive(now)
            self._work(now)
            run.workers.append(workers)
            run.arrivals.append(float(arrivals.sum()))
            run.lag_seconds.append(self._lag_seconds(now))
            workers = scaler(self._look(now, workers))
        return run

    def _members(self, now: int, wanted: int) -> None:
        """Start and stop workers. Each change stops all workers for a moment."""
        there = self._ready + len(self._starting)
        self._starting += [now + self._world.start] * (wanted - there)
        while wanted < self._ready + len(self._starting):
            if self._starting:
                self._starting.pop()
            else:
                self._ready -= 1
                self._paused_until = now + self._world.pause
        arrived = sum(at <= now for at in self._starting)
        if arrived:
            self._starting = [at for at in self._starting if at > now]
            self._ready += arrived
            self._paused_until = now + self._world.pause

    def _arrive(self, now: int) -> Rates:
        noise = self._random.normal(1, self._world.noise, self._world.partitions).clip(0)
        arrivals: Rates = self._load.arrivals(now) * noise
        self._arrived.append(self._arrived[-1] + arrivals)
        return arrivals

    def _work(self, now: int) -> None:
        self._done_before = self._done.copy()
        if now < self._paused_until:
            return
        backlog = self._arrived[-1] - self._done
        stuck = self._load.stuck(now)
        if stuck is not None:
            backlog[stuck] = 0
        for worker in range(min(self._ready, self._world.partitions)):
            mine = np.arange(worker, self._world.partitions, self._ready)
            done = _shared(self._world.rate, backlog[mine])
            self._done[mine] += done
            self._moved[mine[done > 0]] = now
            if done.sum() > 0:
                self._rate = self._world.rate * self._random.normal(1, self._world.noise)

    def _lag_seconds(self, now: int) -> float:
        stuck = self._load.stuck(now)
        for partition in range(self._world.partitions):
            done = self._done[partition] + 1e-6
            at = self._oldest[partition]
            while at <= now and self._arrived[at + 1][partition] <= done:
                at += 1
            self._oldest[partition] = at
        return float(max(now + 1 - at for partition, at in enumerate(self._oldest) if partition != stuck))

    def _look(self, now: int, workers: int) -> Look:
        seconds = min(ARRIVAL_WINDOW, now + 1)
        backlog = self._arrived[-1] - self._done
        self._moved[backlog <= 1e-6] = now
        return Look(
            time=now,
            workers=workers,
            settled=not self._starting and now >= self._paused_until,
            rate=self._rate,
            arrivals=(self._arrived[-1] - self._arrived[-1 - seconds]) / seconds,
            backlog=backlog,
            stalled=now - self._moved,
            progress=self._done - self._done_before,
        )


def _shared(room: float, waiting: Rates) -> Rates:
    """The events that a worker processes in a second: all that wait, or a fair share of each partition."""
    if waiting.sum() <= room:
        return waiting
    order = np.sort(waiting)
    # The fair share: what partitions with little backlog leave of it goes to the others.
    left = room
    for place, most in enumerate(order):
        level = left / (len(order) - place)
        if most >= level:
            return np.minimum(waiting, level)
        left -= most
    return waiting


def loads(world: World) -> list[Load]:
    """The loads; 1 is the rate of one worker."""
    even = np.full(world.partitions, world.rate / world.partitions)
    hot = np.full(world.partitions, 0.1 / (world.partitions - 1))
    hot[0] = 0.9
    hour = 3600

    def wave(now: int) -> Rates:
        return even * (3.25 - 2.75 * math.cos(2 * math.pi * now / hour))

    return [
        Load("step", "0.7 -> 3.5 workers' worth, for good", hour, lambda t: even * (0.7 if t < 600 else 3.5)),
        Load("ramp", "0.5 -> 6 workers' worth in 30 minutes", hour, lambda t: even * (0.5 + 5.5 * min(t / 1800, 1))),
        Load("spike", "ten times as much for 2 minutes", hour, lambda t: even * (5 if 600 <= t < 720 else 0.5)),
        Load("daily", "a day in an hour, 0.5 to 6 workers' worth", hour, wave),
        Load(
            "stuck", "one of 12 partitions does not move", hour, lambda _: even * 1.5, lambda t: 3 if t >= 600 else None
        ),
        Load(
            "skewed", "nine in ten events in one partition, 0.6 -> 1.5", hour,
            lambda t: hot * world.rate * (0.6 if t < 600 or t >= 1500 else 1.5),
        ),
        Load("flapping", "1 and 3 workers' worth, a minute each", hour, lambda t: even * (1 if t // 60 % 2 else 3)),
    ]  # fmt: skip


def simulate(world: World, load: Load, scaler: Scaler) -> Run:
    """One run."""
    return Simulation(world, load).run(scaler)
