from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.consumers.observability import metrics as m
from millstream.consumers.supervision.capacity import CapacityEstimate, Counters, Work, counters, work_between


def test_stages_of_one_thread_add_up_and_events_are_what_became_of_records() -> None:
    stages = {"poll": 9.0, "queue": 9.0, "decode": 1.0, "infer": 2.0, "encode": 0.5, "produce": 0.25, "commit": 0.125}
    samples = {(f"{m.STAGE_SECONDS.name}_sum", stage): seconds for stage, seconds in stages.items()}
    samples |= {(m.PREDICTIONS.name, ""): 90.0, (m.DEAD_LETTERS.name, ""): 8.0, (m.TOMBSTONES.name, ""): 2.0}
    assert counters(samples) == Counters(100, (3.0, 0.875))


def test_busiest_thread_bounds_the_rate() -> None:
    work = work_between(Counters(100, (1.0, 5.0)), Counters(400, (1.5, 5.3)), 2.0)
    assert work == Work(300, 0.5, 2.0)
    estimate = CapacityEstimate()
    estimate.add({0: work}, behind=True)
    assert estimate.capacity == 600
    assert estimate.utilisation == 0.25


def test_lanes_that_are_busy_at_once_are_busy_no_longer_than_the_clock() -> None:
    assert work_between(Counters(0, (0.0, 0.0)), Counters(100, (6.0, 0.3)), 2.0) == Work(100, 2.0, 2.0)


@pytest.mark.parametrize("after", [Counters(99, (2.0, 6.0)), Counters(500, (0.1, 6.0))])
def test_counters_that_went_back_are_another_process(after: Counters) -> None:
    assert work_between(Counters(100, (1.0, 5.0)), after, 1.0) is None


def test_work_shows_what_a_worker_can_do_only_while_events_wait() -> None:
    estimate = CapacityEstimate()
    for _ in range(20):
        estimate.add({0: Work(10, 0.9, 1.0)}, behind=False)  # busy with small transactions
    assert (estimate.capacity, estimate.utilisation) == (None, 0.9)
    estimate.add({0: Work(1000, 1.0, 1.0)}, behind=True)
    for _ in range(50):
        estimate.add({0: Work(10, 0.9, 1.0)}, behind=False)
    assert estimate.capacity == 1000
    for _ in range(50):
        estimate.add({0: Work(450, 0.9, 1.0)}, behind=True)  # it has become slower
    assert estimate.capacity == pytest.approx(500, rel=0.01)


def test_workers_are_as_busy_as_in_the_last_seconds_although_a_look_may_fall_into_a_batch() -> None:
    estimate = CapacityEstimate()
    for second in range(30):
        done = second % 2
        estimate.add({0: Work(509 * done, done, 1.0), 1: Work(509 * (1 - done), 1 - done, 1.0)}, behind=True)
    assert estimate.utilisation == 0.5
    for _ in range(5):
        assert estimate.utilisation > 0
        estimate.add({0: Work(0, 0.0, 1.0), 1: Work(0, 0.0, 1.0)}, behind=False)
    assert estimate.utilisation == 0
    estimate.add({0: Work(100, 1.0, 1.0)}, behind=False)
    estimate.add({}, behind=False)
    assert estimate.utilisation == 0


def test_best_worker_counts_for_others_may_have_little_to_do() -> None:
    estimate = CapacityEstimate()
    for _ in range(20):
        estimate.add({0: Work(800, 1.0, 1.0), 1: Work(10, 0.9, 1.0), 2: Work(5, 0.001, 1.0)}, behind=True)
    assert estimate.capacity == pytest.approx(800)


def test_idle_workers_say_nothing() -> None:
    estimate = CapacityEstimate()
    estimate.add({}, behind=True)
    estimate.add({0: Work(0, 0.0, 1.0)}, behind=True)
    assert (estimate.capacity, estimate.utilisation) == (None, 0.0)


@given(st.floats(1, 1e5), st.lists(st.floats(0.2, 1), min_size=1, max_size=40))
def test_rate_of_a_steady_worker_is_found_however_busy_it_is(rate: float, utilisations: list[float]) -> None:
    estimate = CapacityEstimate()
    for share in utilisations:
        estimate.add({0: Work(rate * 100 * share, 100 * share, 100.0)}, behind=True)
    assert estimate.capacity == pytest.approx(rate)
