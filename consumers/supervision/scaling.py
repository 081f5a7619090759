"""How many workers a pipeline needs: one pure decision, for the supervisor, the exported metric and the simulation.

A worker's *capacity* (events per busy second) and the arrival rate decide, as in DS2 (Kalavri et al., OSDI 2018,
"Three steps is all you need"), not a count of messages: a backlog counts by the rate at which it has to be worked off to be
gone within the catch-up target. Sizes up at once, down late: the hysteresis of two utilisations and a stabilisation window, as
Kubernetes' autoscaler has it.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal, get_args

SCALE_UP_UTILISATION, SCALE_DOWN_UTILISATION = (
    0.8,
    0.65,
)  # utilisation by what arrives above which workers are added, and below which a size must be to go down to it
MAX_UTILISATION = 0.95  # most utilisation of the worker that has most partitions
STUCK_AFTER = (
    30.0  # seconds without progress in a partition's backlog; longer than a crashed worker's session and its restart
)
LONGEST_SETTLING = 60.0  # seconds: a worker that never gets ready must not hold the decision for ever


Action = Literal["up", "down", "hold", "limited", "settling", "unknown", "fixed"]
ACTIONS: tuple[Action, ...] = get_args(Action)


@dataclass(frozen=True, slots=True)
class Policy:
    """The bounds and the target; seconds."""

    min_workers: int
    max_workers: int
    catch_up: float  # a backlog should be gone within
    scale_down_after: float  # a smaller size must have been enough for so long


@dataclass(frozen=True, slots=True)
class PartitionLoad:
    """What one partition asks for."""

    arrival: float  # events a second
    backlog: float  # events that wait
    stalled: float = 0.0  # seconds since its backlog last moved


@dataclass(frozen=True, slots=True)
class Observation:
    """What is known at a moment."""

    time: float  # seconds, on any clock that only grows
    workers: int  # that are meant to run
    settled: bool  # whether they all are ready and share all partitions
    capacity: float | None  # events per busy second of one worker; None: not known, for events never waited for one
    partitions: tuple[PartitionLoad, ...] | None  # None: not known


@dataclass(frozen=True, slots=True)
class Memory:
    """What one decision leaves to the next."""

    enough: tuple[
        tuple[float, int], ...
    ] = ()  # (time, size that would have been enough), over the stabilisation window
    unsettled_since: float | None = None
    known_since: float | None = None  # since when the stabilisation window fills


@dataclass(frozen=True, slots=True)
class Decision:
    """How many workers there should be."""

    workers: int
    action: Action
    reason: str  # a sentence
    needed: int | None = None  # before hysteresis and bounds; None: not known
    stuck: int = 0  # partitions that no worker moves


def decide(policy: Policy, memory: Memory, seen: Observation) -> tuple[Decision, Memory]:
    """The number of workers for now, and what to remember.

    What is unknown holds the size, and starts the stabilisation window anew.
    """
    size = min(max(seen.workers, policy.min_workers), policy.max_workers)
    if size != seen.workers:
        bounds = f"{seen.workers} -> {size}: {policy.min_workers} to {policy.max_workers} workers are allowed"
        return Decision(size, "up" if size > seen.workers else "down", bounds), Memory()
    if policy.min_workers == policy.max_workers:
        return Decision(size, "fixed", "the size is fixed"), Memory()
    unsettled = None if seen.settled else seen.time if memory.unsettled_since is None else memory.unsettled_since
    if unsettled is not None and seen.time - unsettled < LONGEST_SETTLING:
        settling = Decision(size, "settling", "hold: a start or a rebalance settles")
        return settling, replace(memory, unsettled_since=unsettled)
    if not seen.partitions:
        return Decision(size, "unknown", "hold: the lag is not known"), Memory(unsettled_since=unsettled)
    if not seen.capacity:
        unknown = Decision(size, "unknown", "hold: no backlog has shown yet what a worker can do")
        return unknown, Memory(unsettled_since=unsettled)
    return _sized(policy, replace(memory, unsettled_since=unsettled), seen, seen.partitions, seen.capacity)


def _sized(
    policy: Policy, memory: Memory, seen: Observation, partitions: tuple[PartitionLoad, ...], capacity: float
) -> tuple[Decision, Memory]:
    now, size = seen.time, seen.workers
    needed = workers_needed(partitions, capacity, policy.catch_up, SCALE_UP_UTILISATION)
    known = now if memory.known_since is None else memory.known_since
    enough = workers_needed(partitions, capacity, policy.catch_up, SCALE_DOWN_UTILISATION)
    window = (*((at, n) for at, n in memory.enough if at >= now - policy.scale_down_after), (now, enough))
    enough = max(policy.min_workers, *(n for _, n in window))
    load = _load_text(partitions, capacity, policy)
    up = min(needed, policy.max_workers)
    action: Action = "hold"
    if up > size:
        action, reason = "up", f"{size} -> {up}: {load}"
    elif needed > size:
        action, reason = "limited", f"hold, for no more are allowed, {needed} would be needed: {load}"
    elif enough >= size:
        reason = f"hold: {load}"
    elif now - known < policy.scale_down_after:
        reason = f"hold: {enough} would be enough, down in {known + policy.scale_down_after - now:.0f} s if that lasts"
    else:
        action = "down"
        reason = f"{size} -> {enough}: {enough} were enough for {policy.scale_down_after:g} s, {load}"
    stuck = sum(is_stuck(partition) for partition in partitions)
    workers = {"up": up, "down": enough}.get(action, size)
    # A new size is judged by what is seen under it.
    after = Memory() if workers != size else replace(memory, enough=window, known_since=known)
    return Decision(workers, action, f"{reason}{_stuck_text(stuck)}", needed, stuck), after


def is_stuck(partition: PartitionLoad) -> bool:
    """Whether a backlog waits that no worker moves: a poisonous event, an executor that is away, a hanging transaction."""
    return partition.backlog > 0 and partition.stalled >= STUCK_AFTER


def workers_needed(partitions: tuple[PartitionLoad, ...], capacity: float, catch_up: float, utilisation: float) -> int:
    """Workers for these loads, at most one a partition.

    A partition's load is in workers: what arrives at the given utilisation, and its backlog over the catch-up time. It counts
    at most 1, for one worker at a time reads it; a stuck one's backlog counts nothing, for more workers would not move it.
    Members of a group share partitions by number, so there must be enough workers that the one with most of them can bear
    what arrives.
    """
    arrival = [min(partition.arrival / capacity, 1.0) for partition in partitions]
    load = sum(
        min(p.arrival / (capacity * utilisation) + (0.0 if is_stuck(p) else p.backlog / (capacity * catch_up)), 1.0)
        for p in partitions
    )
    count = len(partitions)
    workers = max(1, min(math.ceil(load - 1e-9), count))
    mean = sum(arrival) / count
    while workers < count and math.ceil(count / workers) * mean > MAX_UTILISATION:
        workers += 1
    return workers


def _load_text(partitions: tuple[PartitionLoad, ...], capacity: float, policy: Policy) -> str:
    arrival = sum(partition.arrival for partition in partitions)
    backlog = sum(partition.backlog for partition in partitions)
    text = f"{arrival:,.0f} events/s come and {backlog:,.0f} wait, a worker does {capacity:,.0f}/s"
    return f"{text}, to catch up within {policy.catch_up:g} s" if backlog > capacity else text


def _stuck_text(stuck: int) -> str:
    if not stuck:
        return ""
    return f"; {stuck} partition{'s do' if stuck > 1 else ' does'} not move, which more workers would not change"
