import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from millstream.consumers.demo.results import RECENT_EVENTS, Results

ANSWERS = st.lists(st.tuples(st.booleans(), st.one_of(st.none(), st.integers(0, 9))), max_size=40)


@given(ANSWERS, st.integers(0, 10))
def test_every_record_is_counted_once_and_sums_agree(answers: list[tuple[bool, int | None]], sent: int) -> None:
    results = Results(10)
    for is_prediction, number in answers:
        if is_prediction:
            results.predicted(number, 0.5, 1.0)
        else:
            results.died(number, "unfit")
    tally = results.tally(sent)
    numbers = {number for _, number in answers if number is not None}
    early = {number for number in numbers if number >= sent}
    assert tally.predicted + tally.dead == len(numbers - early)
    assert tally.unanswered == sent - len(numbers - early)
    assert len(numbers) + tally.duplicates + sum(number is None for _, number in answers) == len(answers)
    assert tally.strangers == sum(number is None for _, number in answers) + len(early)
    assert tally.adds_up == (numbers == set(range(sent)) and all(number is not None for _, number in answers))


def test_lost_event_and_stranger_each_spoil_the_sum() -> None:
    lost, strange, good = Results(2), Results(2), Results(2)
    for results in (lost, strange, good):
        results.predicted(0, 0.5, 1.0)
    for results in (strange, good):
        results.died(1, "undecodable")
    strange.predicted(None, 0.5, 1.0)
    assert [results.tally(2).adds_up for results in (lost, strange, good)] == [False, False, True]


def test_second_answer_is_a_duplicate_and_changes_nothing() -> None:
    results = Results(1)
    results.predicted(0, 0.25, 10.0)
    results.predicted(0, 0.75, 99.0)
    results.died(0, "unfit")
    tally = results.tally(1)
    assert (tally.predicted, tally.dead, tally.duplicates, dict(tally.reasons)) == (1, 0, 2, {})
    assert results.score(0) == 0.25
    assert results.latency() == (10.0, 10.0, 10.0)


def test_latency_is_unknown_before_the_first_prediction() -> None:
    results = Results(3)
    results.died(0, "unfit")
    assert all(math.isnan(value) for value in (*results.latency(), *results.recent_latency()))
    assert results.score(0) is None


def test_recent_latency_forgets_what_is_long_past() -> None:
    results = Results(2 * RECENT_EVENTS)
    for number in range(2 * RECENT_EVENTS):
        results.predicted(number, 0.5, 1000.0 if number < RECENT_EVENTS else 10.0)
    assert results.recent_latency() == (10.0, 10.0, 10.0)
    assert results.latency()[2] == 1000.0


def test_scores_are_those_of_predicted_events() -> None:
    results = Results(4)
    results.predicted(2, 0.5, 1.0)
    results.died(1, "unfit")
    results.predicted(0, 0.25, 1.0)
    numbers, scores = results.scores()
    np.testing.assert_array_equal(numbers, [0, 2])
    np.testing.assert_array_equal(scores, np.array([0.25, 0.5], np.float32))
