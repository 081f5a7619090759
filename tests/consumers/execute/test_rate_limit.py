"""Quotas that workers share: never more than the rate permits, whatever comes and whoever has the partitions."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.consumers.execute.rate_limit import BURST_SECONDS, GroupQuota, TokenBucket

STEPS = st.lists(st.tuples(st.floats(0, 20), st.floats(0.01, 30)), max_size=60)  # seconds that pass, amount


@given(st.floats(0.01, 100), STEPS)
def test_never_more_than_rate_times_time_and_the_burst(rate: float, steps: list[tuple[float, float]]) -> None:
    bucket, now = TokenBucket(rate, 0.0), 0.0
    taken: list[tuple[float, float]] = []
    for seconds, amount in steps:
        now += seconds
        if bucket.wait(amount, now) == 0:
            bucket.take(amount)
            taken.append((now, amount))
    for first in range(len(taken)):
        for last in range(first, len(taken)):
            window = taken[first : last + 1]
            burst = max(bucket.burst, *(amount for _, amount in window), 0.0) if window else 0.0
            permitted = rate * (window[-1][0] - window[0][0]) + burst
            assert sum(amount for _, amount in window) <= permitted * (1 + 1e-6)
    assert sum(amount for _, amount in taken) <= rate * now * (1 + 1e-6)  # it begins empty


@given(st.floats(0.01, 100), st.floats(0.01, 30))
def test_amount_is_permitted_after_the_time_that_it_says(rate: float, amount: float) -> None:
    bucket = TokenBucket(rate, 0.0)
    wait = bucket.wait(amount, 0.0)
    assert wait == pytest.approx(amount / rate)
    assert bucket.wait(amount, wait * 0.99) > 0
    assert bucket.wait(amount, wait) == 0


def test_busy_bucket_gives_its_whole_rate() -> None:
    bucket, now, taken = TokenBucket(10.0, 0.0), 0.0, 0
    while now < 100:
        if (wait := bucket.wait(1, now)) == 0:
            bucket.take(1)
            taken += 1
        now += wait
    assert taken == pytest.approx(1000, abs=2)


PARTITIONS = 6
# At each step some time passes, a partition gets another owner, and a worker sends what it may.
MOVES = st.lists(
    st.tuples(st.floats(0, 5), st.integers(0, PARTITIONS - 1), st.integers(0, 2), st.booleans()), max_size=80
)


@given(st.floats(1, 600), MOVES)
def test_workers_together_never_exceed_the_quota_while_partitions_move(
    per_minute: float, moves: list[tuple[float, int, int, bool]]
) -> None:
    workers = [GroupQuota(per_minute, None, 0.0) for _ in range(3)]
    owner: dict[int, int] = {}  # none has a partition at the start
    known = [False] * 3
    now, sent = 0.0, 0
    for seconds, partition, worker, looks in moves:
        now += seconds
        before = owner.get(partition)
        if before != worker:
            owner[partition] = worker
            for changed in {before, worker} - {None}:
                known[changed] = False  # type: ignore[index]
        for number, quota in enumerate(workers):
            if number != worker and not looks:
                continue
            share = sum(each == number for each in owner.values()) / PARTITIONS
            quota.set_share(share, now, known=known[number])
            known[number] = True
            while quota.take(0, now) == 0:
                sent += 1
            assert share or math.isinf(quota.take(0, now))
    assert sent <= per_minute / 60 * now * (1 + 1e-6)


def test_share_that_falls_takes_what_was_saved_and_one_that_rises_adds_nothing() -> None:
    quota = GroupQuota(600, None, 0.0)
    quota.set_share(1.0, 0.0, known=False)
    assert quota.take(0, 0.0) > 0
    assert quota.take(0, 10.0) == 0  # a burst of 10 is there
    quota.set_share(0.2, 10.0, known=False)
    assert [quota.take(0, 10.0) for _ in range(3)] == [0, 0, pytest.approx(0.5)]
    quota.set_share(1.0, 10.0, known=False)
    assert quota.take(0, 10.0) == pytest.approx(0.1)


def test_worker_without_partitions_waits_for_ever() -> None:
    quota = GroupQuota(600, 1000, 0.0)
    assert math.isinf(quota.take(10, 1000.0))


def test_request_needs_both_quotas_and_takes_none_if_one_is_missing() -> None:
    quota = GroupQuota(60, 6000, 0.0)
    quota.set_share(1.0, 0.0, known=False)
    assert quota.take(50, BURST_SECONDS) == 0
    assert quota.take(50, BURST_SECONDS) == pytest.approx(1.0)  # the request; the tokens are there
    assert quota.take(200, BURST_SECONDS + 1) == pytest.approx(0.5)  # the tokens; the request is there
    assert quota.take(200, BURST_SECONDS + 1.5) == 0


def test_tokens_are_corrected_by_what_a_request_really_took() -> None:
    quota = GroupQuota(None, 60, 0.0)
    quota.set_share(1.0, 0.0, known=False)
    assert quota.take(10, 10.0) == 0
    quota.correct_tokens(5)
    assert quota.take(1, 10.0) == pytest.approx(6.0)
    quota.correct_tokens(-6)
    assert quota.take(1, 10.0) == 0


def test_without_quotas_nothing_waits() -> None:
    quota = GroupQuota(None, None, 0.0)
    assert not quota
    assert quota.take(1000, 0.0) == 0
