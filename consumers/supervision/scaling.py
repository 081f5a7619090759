"""Decides how many workers a pipeline needs. Pure; the supervisor, the exported metric and the simulation use it.

The decision depends on a worker's *capacity* (events per busy second) and the arrival rate, as in DS2 (Kalavri et al., OSDI
2018, "Three steps is all you need"), not on the number of waiting messages. A backlog counts by the rate that clears it within
the catch-up target. The decision adds workers at once, but removes them late: it uses two utilisations (hysteresis), and a
stabilisation window like that of Kubernetes' autoscaler.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal, get_args

# Utilisation by the arriving events, without the backlog.
SCALE_UP_UTILISATION = 0.8  # workers are added if the utilisation would be higher
SCALE_DOWN_UTILISATION = 0.65  # a smaller size is only chosen if its utilisation would not be higher
MAX_UTILISATION = 0.95  # highest utilisation of the worker that has most partitions
# Seconds without progress after which a partition with a backlog counts as stuck, or later: see `stuck_after`. A crashed
# worker's session timeout and its restart take less.
STUCK_AFTER = 30.0
LONGEST_SETTLING = 60.0  # seconds; after that, the decision no longer waits for a worker that doesn't get ready


Action = Literal["up", "down", "hold", "limited", "settling", "unknown", "fixed"]
ACTIONS: tuple[Action, ...] = get_args(Action)


@dataclass(frozen=True, slots=True)
class Policy:
    """The limits and targets. Times are in seconds."""

    min_workers: int
    max_workers: int
    catch_up: float  # the time within which a backlog should be cleared
    scale_down_after: float  # how long a smaller size must have been enough before workers are removed
    in_flight: int  # events that a worker may read before it has finished the first of them


@dataclass(frozen=True, slots=True)
class PartitionLoad:
    """The load of one partition."""

    arrival: float  # events per second
    backlog: float  # events that wait
    stalled: float = 0.0  # seconds since a worker last made progress
    progress: float = 0.0  # events per second that workers finish


@dataclass(frozen=True, slots=True)
class Observation:
    """The input of a decision."""

    time: float  # seconds, on any clock that never goes back
    workers: int  # workers that should run
    settled: bool  # whether they are all ready and share all partitions
    capacity: (
        float | None
    )  # events per busy second of one worker; None: not measured yet, because no events have waited
    partitions: tuple[PartitionLoad, ...] | None  # None: not known


@dataclass(frozen=True, slots=True)
class Memory:
    """What one decision passes on to the next."""

    # (time, size that would have been enough), over the stabilisation window
    enough: tuple[tuple[float, int], ...] = ()
    unsettled_since: float | None = None
    known_since: float | None = None  # the start of the stabilisation window


@dataclass(frozen=True, slots=True)
class Decision:
    """How many workers there should be."""

    workers: int
    action: Action
    reason: str  # a sentence
    needed: int | None = None  # workers before hysteresis and limits; None: not known
    stuck: int = 0  # partitions with a backlog that no worker moves


def decide(policy: Policy, memory: Memory, seen: Observation) -> tuple[Decision, Memory]:
    """Decide on the number of workers; returns the decision, and the memory for the next one.

    If the lag or the capacity isn't known, the size stays, and the stabilisation window starts again.
    """
    decision, after = _decide(policy, memory, seen)
    partitions = seen.partitions or ()
    limit = stuck_after(policy, partitions, seen.capacity)
    # Counted also where the size is fixed, or can't be decided.
    stuck = sum(is_stuck(partition, limit) for partition in partitions)
    return replace(decision, reason=f"{decision.reason}{_stuck_text(stuck)}", stuck=stuck), after


def _decide(policy: Policy, memory: Memory, seen: Observation) -> tuple[Decision, Memory]:
    size = min(max(seen.workers, policy.min_workers), policy.max_workers)
    if size != seen.workers:
        bounds = f"{seen.workers} -> {size}: {policy.min_workers} to {policy.max_workers} workers are allowed"
        return Decision(size, "up" if size > seen.workers else "down", bounds), Memory()
    if policy.min_workers == policy.max_workers:
        return Decision(size, "fixed", "the size is fixed"), Memory()
    unsettled = None if seen.settled else seen.time if memory.unsettled_since is None else memory.unsettled_since
    if unsettled is not None and seen.time - unsettled < LONGEST_SETTLING:
        settling = Decision(size, "settling", "hold: workers start, or partitions are being reassigned")
        return settling, replace(memory, unsettled_since=unsettled)
    if not seen.partitions:
        return Decision(size, "unknown", "hold: the arrival rate is not known"), Memory(unsettled_since=unsettled)
    if not seen.capacity:
        unknown = Decision(size, "unknown", "hold: a worker's capacity isn't measured yet (it needs a backlog)")
        return unknown, Memory(unsettled_since=unsettled)
    return _sized(policy, replace(memory, unsettled_since=unsettled), seen, seen.partitions, seen.capacity)


def _sized(
    policy: Policy, memory: Memory, seen: Observation, partitions: tuple[PartitionLoad, ...], capacity: float
) -> tuple[Decision, Memory]:
    now, size = seen.time, seen.workers
    limit = stuck_after(policy, partitions, capacity)
    needed = workers_needed(partitions, capacity, policy.catch_up, SCALE_UP_UTILISATION, limit)
    known = now if memory.known_since is None else memory.known_since
    enough = workers_needed(partitions, capacity, policy.catch_up, SCALE_DOWN_UTILISATION, limit)
    window = (*((at, n) for at, n in memory.enough if at >= now - policy.scale_down_after), (now, enough))
    enough = max(policy.min_workers, *(n for _, n in window))
    load = _load_text(partitions, capacity, policy)
    up = min(needed, policy.max_workers)
    action: Action = "hold"
    if up > size:
        action, reason = "up", f"{size} -> {up}: {load}"
    elif needed > size:
        action, reason = "limited", f"hold: {needed} would be needed, but no more are allowed: {load}"
    elif enough >= size:
        reason = f"hold: {load}"
    elif now - known < policy.scale_down_after:
        reason = f"hold: {enough} would be enough; down in {known + policy.scale_down_after - now:.0f} s if that lasts"
    else:
        action = "down"
        were = "was" if enough == 1 else "were"
        reason = f"{size} -> {enough}: {enough} {were} enough for {policy.scale_down_after:g} s, {load}"
    workers = {"up": up, "down": enough}.get(action, size)
    # After a change of the size, the stabilisation window starts again.
    after = Memory() if workers != size else replace(memory, enough=window, known_since=known)
    return Decision(workers, action, reason, needed), after


def stuck_after(policy: Policy, partitions: tuple[PartitionLoad, ...], capacity: float | None) -> float:
    """Seconds without progress after which a partition with a backlog counts as stuck.

    While other partitions move, a partition may only wait for its turn: a worker finishes events in the order in which it read
    them, so all its events in flight may be ahead. While nothing moves, no partition waits for its turn.
    """
    moving = any(p.progress > 0 or (p.backlog > 0 and p.stalled < STUCK_AFTER) for p in partitions)
    return max(STUCK_AFTER, policy.in_flight / capacity) if moving and capacity else STUCK_AFTER


def is_stuck(partition: PartitionLoad, limit: float) -> bool:
    """Whether a backlog has made no progress for `limit` seconds.

    Causes: an event that crashes workers, an outage, a transaction that hangs.
    """
    return partition.backlog > 0 and partition.stalled >= limit


def workers_needed(
    partitions: tuple[PartitionLoad, ...],
    capacity: float,
    catch_up: float,
    utilisation: float,
    limit: float = STUCK_AFTER,
) -> int:
    """The number of workers for these loads, at most one per partition.

    A partition's load is measured in workers: the arriving events at the given utilisation, plus the backlog over the catch-up
    time. It counts at most 1, because only one worker at a time reads a partition. The backlog of a partition that is stuck
    (without progress for `limit` seconds) doesn't count, because more workers would not help. The group shares partitions by
    number, not by load. So there must be enough workers that the one with most partitions can process their arriving events.
    """
    arrival = [min(partition.arrival / capacity, 1.0) for partition in partitions]
    load = sum(
        min(
            p.arrival / (capacity * utilisation) + (0.0 if is_stuck(p, limit) else p.backlog / (capacity * catch_up)),
            1.0,
        )
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
    text = f"{arrival:,.0f} events/s arrive and {backlog:,.0f} wait, a worker can do {capacity:,.0f}/s"
    return f"{text}, to catch up within {policy.catch_up:g} s" if backlog > capacity else text


def _stuck_text(stuck: int) -> str:
    if not stuck:
        return ""
    return f"; {stuck} partition{'s make' if stuck > 1 else ' makes'} no progress, and more workers would not help"
