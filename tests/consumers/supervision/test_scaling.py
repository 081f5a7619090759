from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.consumers.supervision.scaling import (
    LONGEST_SETTLING,
    SCALE_UP_UTILISATION,
    STUCK_AFTER,
    Decision,
    Memory,
    Observation,
    PartitionLoad,
    Policy,
    decide,
    stuck_after,
    workers_needed,
)

RATE = 1000.0
IN_FLIGHT = 10_000  # which a worker finishes before STUCK_AFTER
POLICY = Policy(min_workers=1, max_workers=12, catch_up=30, scale_down_after=120, in_flight=IN_FLIGHT)

rates = st.floats(0, 1e6)
partition_loads = st.builds(
    PartitionLoad, arrival=rates, backlog=st.floats(0, 1e9), stalled=st.floats(0, 1000), progress=rates
)
loads = st.lists(partition_loads, min_size=1, max_size=24).map(tuple)
policies = st.tuples(st.integers(1, 20), st.integers(0, 20)).map(
    lambda bounds: Policy(bounds[0], bounds[0] + bounds[1], 30, 120, IN_FLIGHT)
)
observations = st.builds(
    Observation,
    time=st.floats(0, 1e6),
    workers=st.integers(1, 40),
    settled=st.booleans(),
    capacity=st.none() | st.floats(0.1, 1e6),
    partitions=st.none() | loads,
)


def even(workers: float, partitions: int = 12, backlog: float = 0, stalled: float = 0) -> tuple[PartitionLoad, ...]:
    """Partitions to which together so many workers' worth arrives."""
    each = PartitionLoad(workers * RATE / partitions, backlog / partitions, stalled)
    return (each,) * partitions


def seen(time: float, workers: int, partitions: tuple[PartitionLoad, ...] | None, **others: object) -> Observation:
    given_ = {"settled": True, "capacity": RATE} | others
    return Observation(time=time, workers=workers, partitions=partitions, **given_)  # type: ignore[arg-type]


def follow(load: list[tuple[PartitionLoad, ...]], workers: int = 1, policy: Policy = POLICY) -> list[Decision]:
    """The decisions when this load is seen, second after second, and each is carried out at once."""
    memory, decisions = Memory(), []
    for second, partitions in enumerate(load):
        decision, memory = decide(policy, memory, seen(second, workers, partitions))
        workers = decision.workers
        decisions.append(decision)
    return decisions


@given(policies, observations)
def test_size_is_within_the_bounds(policy: Policy, observation: Observation) -> None:
    decision, _ = decide(policy, Memory(), observation)
    assert policy.min_workers <= decision.workers <= policy.max_workers
    assert decision.reason


@given(policies, loads, st.integers(1, 40))
def test_no_worker_is_added_that_finds_no_partition(
    policy: Policy, partitions: tuple[PartitionLoad, ...], workers: int
) -> None:
    decision, _ = decide(policy, Memory(), seen(0, workers, partitions))
    assert decision.workers <= max(workers, len(partitions), policy.min_workers)


@pytest.mark.parametrize(
    ("what", "unknown"),
    [
        ("lag", {"partitions": None}),
        ("capacity", {"capacity": None}),
        ("no partitions", {"partitions": ()}),
        ("settling", {"settled": False}),
    ],
)
@given(workers=st.integers(1, 12), partitions=loads, time=st.floats(0, 50))
def test_unknown_holds_the_size(
    what: str, unknown: dict[str, object], workers: int, partitions: tuple[PartitionLoad, ...], time: float
) -> None:
    observation = seen(time, workers, **({"partitions": partitions} | unknown))  # type: ignore[arg-type]
    decision, _ = decide(POLICY, Memory(), observation)
    assert decision.workers == workers, what
    assert decision.action in {"unknown", "settling"}


def test_worker_that_never_gets_ready_does_not_hold_the_decision_for_ever() -> None:
    memory = Memory()
    for second in range(int(LONGEST_SETTLING) + 1):
        decision, memory = decide(POLICY, memory, seen(second, 1, even(4), settled=False))
        assert (decision.action == "settling") == (second < LONGEST_SETTLING)
    assert decision.workers > 1


@given(loads, st.floats(1, 1e5), st.floats(1, 1e5))
def test_more_load_never_needs_fewer_workers(
    partitions: tuple[PartitionLoad, ...], arrival: float, backlog: float
) -> None:
    first, *others = partitions
    more = (PartitionLoad(first.arrival + arrival, first.backlog + backlog, first.stalled), *others)
    assert workers_needed(more, RATE, 30, SCALE_UP_UTILISATION) >= workers_needed(
        partitions, RATE, 30, SCALE_UP_UTILISATION
    )


@given(loads, st.floats(1, 1e5), st.floats(1.1, 10))
def test_faster_workers_are_never_more(partitions: tuple[PartitionLoad, ...], rate: float, faster: float) -> None:
    assert workers_needed(partitions, rate * faster, 30, SCALE_UP_UTILISATION) <= workers_needed(
        partitions, rate, 30, SCALE_UP_UTILISATION
    )


@given(st.floats(0.01, 11), st.integers(1, 24))
def test_needed_workers_can_bear_what_arrives(load: float, partitions: int) -> None:
    """Also the one of them that has most partitions."""
    needed = workers_needed(even(load, partitions), RATE, 30, SCALE_UP_UTILISATION)
    if needed < partitions:
        assert math.ceil(partitions / needed) * load / partitions <= 1


def test_backlog_counts_by_the_time_in_which_it_must_be_gone() -> None:
    partitions = even(0.8, backlog=3 * 30 * RATE)  # one worker for what arrives, three to work it off in 30 s
    assert workers_needed(partitions, RATE, 30, SCALE_UP_UTILISATION) == 4
    assert workers_needed(partitions, RATE, 90, SCALE_UP_UTILISATION) == 2


def test_partition_counts_as_one_worker_at_most() -> None:
    hot = PartitionLoad(5 * RATE, 1e9)
    assert workers_needed((hot, *even(0.8, 11)), RATE, 30, SCALE_UP_UTILISATION) == 2


def test_load_is_followed_up_at_once() -> None:
    decisions = follow([even(0.5)] * 5 + [even(3)] * 5)
    assert [decision.workers for decision in decisions] == [1] * 5 + [4] * 5
    assert decisions[5].action == "up"
    assert decisions[5].reason.startswith("1 -> 4: 3,000 events/s arrive")


def test_load_is_followed_down_when_it_has_stayed_down() -> None:
    decisions = follow([even(3)] * 10 + [even(0.5)] * 200)
    sizes = [decision.workers for decision in decisions]
    down = sizes.index(1)
    assert set(sizes[:down]) == {4}
    assert down >= 10 + POLICY.scale_down_after
    assert decisions[down].action == "down"
    assert set(sizes[down:]) == {1}


def test_dip_shorter_than_the_window_changes_nothing() -> None:
    load = ([even(3)] * 30 + [even(0.5)] * 100) * 5
    assert {decision.workers for decision in follow(load)} == {4}


def test_load_between_the_two_utilisations_changes_nothing() -> None:
    """What just brought the fifth worker does not let it go again a little lower."""
    assert {decision.workers for decision in follow([even(3.3)] * 300, workers=5)} == {5}
    assert {decision.workers for decision in follow([even(2.9)] * 300, workers=5)} == {5}
    assert follow([even(2.5)] * 300, workers=5)[-1].workers == 4


def test_time_without_knowledge_is_no_reason_to_go_down() -> None:
    memory, workers = Memory(), 4
    for second in range(600):
        partitions = None if second % 100 == 99 else even(0.5)
        decision, memory = decide(POLICY, memory, seen(second, workers, partitions))
        assert decision.workers == 4


@given(st.floats(1, 1e9), st.floats(STUCK_AFTER, 1e5))
def test_backlog_that_no_worker_moves_adds_none(backlog: float, stalled: float) -> None:
    stuck = PartitionLoad(0.05 * RATE, backlog, stalled)
    decision, _ = decide(POLICY, Memory(), seen(0, 2, (stuck, *even(1.4, 11))))
    assert (decision.workers, decision.stuck) == (2, 1)
    assert "1 partition makes no progress" in decision.reason
    moving, _ = decide(POLICY, Memory(), seen(0, 2, (PartitionLoad(0.05 * RATE, 1e9, 1), *even(1.4, 11))))
    assert moving.workers == 3


@pytest.mark.parametrize(
    ("policy", "capacity", "settled"),
    [(Policy(2, 2, 30, 120, IN_FLIGHT), RATE, True), (POLICY, None, True), (POLICY, RATE, False)],
    ids=["fixed size", "unknown capacity", "not settled"],
)
def test_partition_without_progress_is_told_where_the_size_stays(
    policy: Policy, capacity: float | None, settled: bool
) -> None:
    stuck = PartitionLoad(0.0, 9.0, STUCK_AFTER)
    decision, _ = decide(policy, Memory(), Observation(0.0, 2, settled, capacity, (stuck, *even(0.1, 3))))
    assert (decision.workers, decision.stuck) == (2, 1)
    assert decision.reason.endswith("1 partition makes no progress, and more workers would not help")


TURN = 100.0  # seconds that a worker needs for its events in flight
IN_TURNS = replace(POLICY, in_flight=int(TURN * RATE))


@given(st.lists(st.integers(1, 100), min_size=2, max_size=12), st.integers(1, 300))
def test_partition_that_waits_for_its_turn_is_not_stuck(runs: list[int], seconds: int) -> None:
    """A worker finishes all events of one partition that it has in flight, then those of the next."""
    scale = min(TURN / sum(runs), 1.0)
    turns = [scale * run for run in runs]  # seconds of each partition
    ends = [sum(turns[: n + 1]) for n in range(len(turns))]
    now = seconds % sum(turns)
    current = next(n for n, end in enumerate(ends) if now < end)
    waited = [0.0 if n == current else (now - end) % sum(turns) for n, end in enumerate(ends)]
    partitions = tuple(PartitionLoad(0, 1e6, wait, RATE if n == current else 0) for n, wait in enumerate(waited))
    decision, _ = decide(IN_TURNS, Memory(), seen(0, 1, partitions))
    assert decision.stuck == 0
    assert decision.workers == min(len(runs), POLICY.max_workers)


def test_partition_is_stuck_if_its_turn_never_comes() -> None:
    """The others move, with a backlog or without one."""
    for others in (PartitionLoad(10, 1e6, 0, 500), PartitionLoad(10, 0, 0, 10)):
        for stalled, stuck in ((STUCK_AFTER, 0), (TURN - 1, 0), (TURN, 1)):
            partitions = (PartitionLoad(10, 1e6, stalled), *(others,) * 3)
            assert decide(IN_TURNS, Memory(), seen(0, 2, partitions))[0].stuck == stuck


def test_no_partition_waits_for_its_turn_where_nothing_moves() -> None:
    partitions = (*(PartitionLoad(10, 1e6, STUCK_AFTER),) * 3, PartitionLoad(0, 0))
    decision, _ = decide(IN_TURNS, Memory(), seen(0, 2, partitions))
    assert (decision.workers, decision.stuck) == (2, 3)


def test_end_of_a_turn_leaves_no_partition_stuck() -> None:
    """The partition whose turn it was has no backlog left, and the next one has not moved yet."""
    partitions = (PartitionLoad(0, 0, 0, 0.3 * RATE), *(PartitionLoad(0, 1e6, 2 * STUCK_AFTER),) * 3)
    assert decide(IN_TURNS, Memory(), seen(0, 2, partitions))[0].stuck == 0


@given(loads, st.floats(0.1, 1e6), st.integers(1, 10**6))
def test_partition_is_stuck_at_the_latest_after_a_turn(
    partitions: tuple[PartitionLoad, ...], capacity: float, in_flight: int
) -> None:
    limit = stuck_after(replace(POLICY, in_flight=in_flight), partitions, capacity)
    assert STUCK_AFTER <= limit <= max(STUCK_AFTER, in_flight / capacity)
    assert stuck_after(POLICY, partitions, None) == STUCK_AFTER


def test_more_than_allowed_is_said() -> None:
    decision = follow([even(8)] * 2, policy=Policy(1, 3, 30, 120, IN_FLIGHT))[-1]
    assert (decision.workers, decision.action, decision.needed) == (3, "limited", 12)
    assert "12 would be needed" in decision.reason


def test_size_outside_new_bounds_is_brought_inside() -> None:
    assert follow([even(1)], workers=9, policy=Policy(2, 4, 30, 120, IN_FLIGHT))[0].workers == 4
    assert follow([even(1)], workers=1, policy=Policy(2, 4, 30, 120, IN_FLIGHT))[0].workers == 2


def test_fixed_size_is_fixed() -> None:
    decisions = follow([even(9)] * 3, workers=2, policy=Policy(2, 2, 30, 120, IN_FLIGHT))
    assert {(decision.workers, decision.action) for decision in decisions} == {(2, "fixed")}
