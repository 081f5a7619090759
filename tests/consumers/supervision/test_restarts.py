from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.consumers.supervision.restarts import FIRST, LONGEST, LOOP, STEADY, Restarts


def test_each_end_in_a_row_waits_twice_as_long_up_to_the_longest() -> None:
    restarts = Restarts()
    assert [restarts.ended(now) for now in range(8)] == [1, 2, 4, 8, 16, 30, 30, 30]


def test_crash_loop_is_several_ends_in_a_row() -> None:
    restarts = Restarts()
    states = []
    for now in range(LOOP):
        restarts.started(now)
        restarts.ended(now + 0.5)
        states.append(restarts.looping)
    assert states == [False] * (LOOP - 1) + [True]
    assert (restarts.in_a_row, restarts.over) == (LOOP, LOOP - 1)


def test_a_minutes_work_ends_a_crash_loop() -> None:
    restarts = Restarts()
    for _ in range(LOOP):
        restarts.ended(0)
    restarts.started(10)
    assert restarts.ended(10 + STEADY) == FIRST
    assert not restarts.looping


@given(st.lists(st.floats(0, 1000), max_size=30))
def test_wait_is_within_its_bounds(lives: list[float]) -> None:
    restarts, now = Restarts(), 0.0
    for life in lives:
        restarts.started(now)
        now += life
        wait = restarts.ended(now)
        assert FIRST <= wait <= LONGEST
        now += wait
