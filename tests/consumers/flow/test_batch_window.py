from bisect import bisect_right
from collections.abc import Sequence
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.consumers.flow.batch_window import (
    HAND_OVER,
    MAX_LINGER,
    MEAN_WINDOWS,
    P99_SAMPLES,
    SHORT_WINDOW,
    BatchWindow,
)

GAPS = st.floats(0, 1)


def steady(window: BatchWindow, gap: float, polls: int, start: float = 0.0) -> float:
    """A record every `gap` seconds; when the next one would come."""
    for at in range(polls):
        window.note(start + at * gap, 1)
    return start + polls * gap


def test_batch_waits_while_nothing_is_known() -> None:
    assert BatchWindow(0.005).length == 0.005


@given(st.floats(0, 1), st.lists(st.tuples(GAPS, st.integers(1, 5), st.floats(0, 2)), max_size=60), st.floats(0.001, 1))
def test_window_is_between_zero_and_the_longest_wait(
    max_wait: float, polls: list[tuple[float, int, float]], target: float
) -> None:
    window, now = BatchWindow(max_wait, target), 0.0
    for gap, records, after in polls:
        now += gap
        window.note(now, records)
        window.report(after)
        assert 0 <= window.length <= max_wait
        lingers = list(window.lingers(now))
        assert lingers == sorted(lingers)
        assert all(0 < end <= window.length for end in lingers)


def test_lone_events_do_not_wait() -> None:
    window = BatchWindow(0.005)
    steady(window, 0.1, 3)
    assert window.length == 0


def test_bunches_that_come_whole_do_not_wait() -> None:
    window = BatchWindow(0.005)
    for at in range(3):
        window.note(at * 0.02, 200)
    assert window.length == 0


@pytest.mark.parametrize(("within", "length"), [(0.0009, 0.001), (0.004, 0.005)])
def test_bunches_that_come_in_pieces_wait_until_they_are_whole(within: float, length: float) -> None:
    window = BatchWindow(0.005)
    for at in range(3):
        for piece in range(4):
            window.note(at * 0.02 + piece / 3 * within, 50)
    assert window.length == pytest.approx(length)


@given(st.floats(0.0001, 0.0024), st.floats(0.011, 10))
def test_window_follows_the_load_up_and_down(often: float, seldom: float) -> None:
    window, longest = BatchWindow(0.005), 0.005
    now = steady(window, seldom, 2 * MEAN_WINDOWS)
    assert window.length == 0
    now = steady(window, often, ceil(MEAN_WINDOWS * (longest + often) / often) + 1, now)
    assert window.length == longest
    # What 16 windows remember of many events is forgotten by halves: a hundred lone ones are enough for any of these loads.
    steady(window, seldom, 100, now)
    assert window.length == 0


def read(window: BatchWindow, arrivals: Sequence[float]) -> None:
    """As the worker reads: a record that it waited for brings those with it that come while the window is open."""
    at = 0
    while at < len(arrivals):
        came = arrivals[at]
        window.note(came, 1)
        at += 1
        for end in window.lingers(came):
            more = bisect_right(arrivals, came + end) - at
            if more:
                window.note(came + end, more)
            at += more


@given(st.floats(0.0001, 0.0024), st.floats(0.011, 10))
def test_window_follows_the_load_when_what_came_along_is_noted_at_once(often: float, seldom: float) -> None:
    window, longest = BatchWindow(0.005), 0.005
    read(window, [at * seldom for at in range(2 * MEAN_WINDOWS)])
    assert (window.length, list(window.lingers(0.0))) == (0, [])
    now, many = 2 * MEAN_WINDOWS * seldom, ceil(MEAN_WINDOWS * (longest + often) / often) + 1
    read(window, [now + at * often for at in range(many)])
    assert list(window.lingers(0.0)) == [longest * SHORT_WINDOW, longest]
    read(window, [now + many * often + at * seldom for at in range(100)])
    assert window.length == 0


def test_reader_does_not_linger_as_long_as_a_long_window() -> None:
    assert list(BatchWindow(0.5).lingers(0.0)) == [MAX_LINGER, MAX_LINGER]


def test_no_wait_allowed_is_none() -> None:
    window = BatchWindow(0.0)
    steady(window, 0.001, 50)
    assert window.length == 0


@given(st.lists(st.floats(0, 0.2), min_size=1, max_size=P99_SAMPLES))
def test_wait_is_what_the_slowest_hundredth_leaves_of_the_target(after: list[float]) -> None:
    window = BatchWindow(1.0, 0.1)
    for seconds in after:
        window.report(seconds)
    fresh = len(after) - (len(after) % 10 if len(after) > 10 else 0)  # learnt every ten
    p99 = sorted(after[:fresh])[ceil(0.99 * fresh) - 1]
    assert window.length == pytest.approx(max((0.1 - p99) / (1 + SHORT_WINDOW), 0))


def test_slow_times_are_forgotten() -> None:
    window = BatchWindow(0.05, 0.1)
    window.report(5.0)
    assert window.length == 0
    for _ in range(P99_SAMPLES + 10):
        window.report(0.01)
    assert window.length == 0.05


def test_closed_window_opens_again() -> None:
    """A target that left no time at all hides no load: what comes is counted as soon as there is time again."""
    window = BatchWindow(0.01, 0.05)
    window.report(1.0)
    now = steady(window, 0.001, 50)
    for _ in range(P99_SAMPLES + 10):
        window.report(0.001)
    steady(window, 0.001, 50, now)
    assert window.length == 0.01


def test_without_a_target_the_rest_takes_what_it_takes() -> None:
    window = BatchWindow(0.005)
    for _ in range(100):
        window.report(10.0)
    assert window.length == 0.005


def publishing(lead: float) -> BatchWindow:
    """One whose results are published at 100.02 s, and every 0.02 s; a batch takes `lead` seconds to be written."""
    window = BatchWindow(0.005)
    for _ in range(200):
        window.note_written(50.0, 50.0 + lead)
    window.note_publication(100.0, 0.02)
    window.note_published(100.004, 0.005)
    return window


def test_batch_stays_open_until_its_results_are_about_to_be_published() -> None:
    assert publishing(0.003).closes(100.001) == pytest.approx(100.017)


def test_batch_closes_by_its_window_where_that_ends_later() -> None:
    assert publishing(0.003).closes(100.015) == pytest.approx(100.02)


def test_batch_too_late_for_what_is_published_next_waits_for_what_is_after() -> None:
    window = publishing(0.003)
    window.note_closed(100.0171)
    assert window.closes(100.0165) == pytest.approx(100.037)


def test_batch_of_which_nothing_is_on_its_way_does_not_wait_for_what_is_after() -> None:
    window = publishing(0.003)
    window.note_closed(99.0)
    assert window.closes(100.019) == pytest.approx(100.024)


def test_nobody_waits_for_a_publication_that_is_over() -> None:
    window = publishing(0.003)
    window.note_closed(100.018)
    assert window.closes(107.0) == pytest.approx(107.005)


def test_results_that_take_longer_than_the_time_between_two_publications_do_not_wait() -> None:
    window = publishing(0.05)
    window.note_closed(99.95)
    assert window.closes(100.001) == pytest.approx(100.006)


def test_batch_waits_while_a_publication_that_takes_longer_than_the_time_between_two_is_not_over() -> None:
    """Until then its results could not be written, and events that come meanwhile would miss it."""
    window = publishing(0.003)
    window.note_published(100.03, 0.0)
    assert window.closes(100.001) == pytest.approx(100.027)


def test_batch_waits_for_a_publication_that_takes_as_long_as_those_before_it() -> None:
    window, now = publishing(0.003), 100.0
    for _ in range(200):
        window.note_published(now + 0.03, 0.0)
        now += 0.03
        window.note_publication(now, 0.02)
    assert window.closes(now + 0.001) == pytest.approx(now + 0.027, abs=1e-6)


def test_publication_that_is_soon_over_does_not_come_sooner_than_the_time_between_two() -> None:
    window = publishing(0.003)
    window.note_published(100.004, 0.0)
    assert window.closes(100.001) == pytest.approx(100.017)


def test_results_that_had_to_wait_for_a_publication_do_not_make_the_next_batches_close_sooner() -> None:
    window, now = publishing(0.003), 100.0
    for _ in range(200):
        window.note_published(now + 0.03, 0.0)
        window.note_written(now + 0.005, now + 0.033)  # closed during a publication, and written 3 ms after its end
        now += 0.033
        window.note_publication(now, 0.02)
    window.note_published(now + 0.01, 0.0)
    assert window.closes(now + 0.001) == pytest.approx(now + 0.017)


def test_reader_passes_records_on_shortly_before_their_batch_closes() -> None:
    window = publishing(0.003)
    *_, last = window.lingers(100.001)
    assert 100.001 + last == pytest.approx(window.closes(100.001) - HAND_OVER)


def test_reader_with_records_too_late_for_the_next_publication_waits_for_the_one_after() -> None:
    window = publishing(0.003)
    *_, last = window.lingers(100.0165)  # the batch closes at 100.017
    assert 100.0165 + last == pytest.approx(100.037 - HAND_OVER)


def test_reader_with_records_too_late_for_a_publication_that_begins_late_waits_for_the_one_after() -> None:
    window = publishing(0.003)
    window.note_closed(100.0175)
    lingers = window.lingers(100.021)  # the publication was expected at 100.02: its batch is still written
    assert 100.021 + next(lingers) < 100.023
    window.note_publication(100.023, 0.02)
    window.note_published(100.027, 0.005)
    *_, last = lingers
    assert 100.021 + last == pytest.approx(100.043 - 0.003 - HAND_OVER)


def test_reader_waits_on_while_a_publication_takes_longer_than_those_before_it() -> None:
    """Records that come meanwhile are in the next one, which comes as soon as results can be written again."""
    window = publishing(0.002)
    window.note_publication(100.02, 0.02)  # should be over at 100.024: the next one would come at 100.04
    came, waited = 100.038, 0.0
    lingers = window.lingers(came)
    while came + waited < 100.05:
        waited = next(lingers)
    window.note_published(100.05, 0.005)
    *_, last = lingers
    assert came + last == pytest.approx(100.055 - 0.002 - HAND_OVER)


def test_reader_waits_for_a_publication_that_hangs_only_for_a_while() -> None:
    window = publishing(0.002)
    window.note_publication(100.02, 0.02)
    *_, last = window.lingers(100.038)
    assert last == MAX_LINGER


def test_batch_too_late_for_a_publication_that_begins_late_waits_for_the_one_after() -> None:
    window = publishing(0.003)
    window.note_closed(100.0175)
    assert window.closes(100.021) == pytest.approx(100.037)


def test_reader_waits_for_no_publication_that_is_over() -> None:
    assert list(publishing(0.003).lingers(107.0)) == list(BatchWindow(0.005).lingers(0.0))


@given(st.floats(0, 0.1), st.floats(0.001, 1), st.floats(-2, 2), st.floats(-2, 2))
def test_reader_never_lingers_for_long(lead: float, every: float, closed: float, came: float) -> None:
    window = BatchWindow(0.005)
    window.note_written(-9.0, lead - 9.0)
    window.note_publication(0.0, every)
    window.note_closed(closed)
    lingers = list(window.lingers(came))
    assert lingers == sorted(lingers)
    assert all(0 < end <= MAX_LINGER for end in lingers)


@given(st.floats(0, 0.1), st.floats(0.001, 1), st.floats(-2, 2), st.floats(-2, 2))
def test_batch_waits_for_its_window_and_for_two_publications_at_most(
    lead: float, every: float, closed: float, arrived: float
) -> None:
    window = BatchWindow(0.005)
    window.note_written(-9.0, lead - 9.0)
    window.note_publication(0.0, every)
    window.note_published(0.0, 0.0)
    window.note_closed(closed)
    assert arrived + window.length <= window.closes(arrived) <= max(arrived + window.length, 2 * every)


@given(st.floats(0, 0.1), st.floats(0.001, 1), st.floats(0, 0.01), st.floats(-2, 2), st.floats(-2, 2))
def test_batch_waits_for_one_publication_at_most_after_one_that_is_not_over(
    lead: float, every: float, rest: float, closed: float, arrived: float
) -> None:
    window = BatchWindow(0.005)
    window.note_written(-9.0, lead - 9.0)
    window.note_publication(-1.0, every)
    window.note_published(-1.0, rest)
    window.note_publication(0.0, every)
    window.note_closed(closed)
    latest = max(arrived + window.length, 2 * every + rest, arrived + rest + every)
    assert arrived + window.length <= window.closes(arrived) <= latest


def test_results_that_are_readable_at_once_wait_for_no_publication() -> None:
    window = BatchWindow(0.005)
    window.note_written(99.0, 99.003)
    window.note_closed(100.0)
    assert window.closes(100.001) == pytest.approx(100.006)
