from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.consumers.execute.adaptive_batch_size import STEPS, SUCCESSES_TO_GROW, AdaptiveBatchSize

MOST = st.integers(1, 2000)


def run(working: AdaptiveBatchSize, fits: int, batch: int) -> int:
    """Run a batch where only so many events fit; returns how often that failed."""
    left, failures = batch, 0
    while left:
        events = min(left, working.size)
        if events > fits:
            working.failed(events)
            failures += 1
        else:
            working.fitted(events)
            left -= events
    return failures


@given(
    MOST, st.lists(st.tuples(st.booleans(), st.floats(0, 1), st.sampled_from([1, SUCCESSES_TO_GROW[0]])), max_size=30)
)
def test_size_is_never_zero_and_never_above_the_most(most: int, calls: list[tuple[bool, float, int]]) -> None:
    working = AdaptiveBatchSize(most)
    assert working.size == most
    for failed, fraction, times in calls:
        for _ in range(times):
            events = max(round(fraction * working.size), 1)
            (working.failed if failed else working.fitted)(events)
            assert 1 <= working.size <= most


@given(MOST, st.integers(0, 3 * SUCCESSES_TO_GROW[0]))
def test_failure_leaves_a_smaller_size(most: int, successes: int) -> None:
    working = AdaptiveBatchSize(most)
    for _ in range(successes):
        working.fitted(working.size)
    size = working.size
    working.failed(size)
    assert working.size < size or size == 1


@settings(max_examples=20)
@given(st.integers(1, 300), st.data())
def test_size_comes_within_a_step_of_what_fits_and_failures_become_rare(most: int, data: st.DataObject) -> None:
    fits = data.draw(st.integers(1, most))
    working = AdaptiveBatchSize(most)
    failures = [run(working, fits, working.size) for _ in range(STEPS * SUCCESSES_TO_GROW[0])]
    assert fits - max(most // STEPS, 1) < working.size <= fits + max(most // STEPS, 1)
    assert sum(failures[-SUCCESSES_TO_GROW[0] :]) <= 1


@given(MOST, st.data())
def test_size_comes_back_with_the_memory_by_small_steps(most: int, data: st.DataObject) -> None:
    working = AdaptiveBatchSize(most)
    fits = data.draw(st.integers(1, most))
    while working.size > fits:
        working.failed(working.size)
    while (before := working.size) < most:
        calls = 0
        while working.size == before:
            working.fitted(working.size)
            calls += 1
        assert working.size - before <= max(most // STEPS, 1)
        assert calls == SUCCESSES_TO_GROW[0]


def test_small_micro_batches_say_nothing_about_a_larger_size() -> None:
    working = AdaptiveBatchSize(64)
    working.failed(64)
    for _ in range(10 * SUCCESSES_TO_GROW[0]):
        working.fitted(31)
    assert working.size == 32


def test_try_that_fails_goes_back_to_what_worked_and_the_next_waits_twice_as_long() -> None:
    working = AdaptiveBatchSize(64)
    working.failed(64)
    waits = []
    for _ in range(10):
        calls = 0
        while working.size == 32:
            working.fitted(32)
            calls += 1
        waits.append(calls)
        working.failed(working.size)
        assert working.size == 32
    assert waits == [min(SUCCESSES_TO_GROW[0] * 2**number, SUCCESSES_TO_GROW[1]) for number in range(10)]


def test_memory_that_comes_back_is_used_without_the_waits_of_the_tries_that_failed() -> None:
    working = AdaptiveBatchSize(64)
    working.failed(64)
    for _ in range(2):
        while working.size == 32:
            working.fitted(32)
        working.failed(working.size)
    run(working, 64, 32 * 4 * SUCCESSES_TO_GROW[0])
    assert working.size == 34
    run(working, 64, 34 * SUCCESSES_TO_GROW[0])
    assert working.size == 36


def test_memory_that_shrinks_is_followed_down() -> None:
    working = AdaptiveBatchSize(64)
    run(working, 40, 64)
    assert run(working, 3, 8) > 0
    assert working.size <= 3


def test_memory_that_shrinks_is_followed_without_the_waits_of_the_tries_that_failed() -> None:
    working = AdaptiveBatchSize(64)
    run(working, 32, 64)
    for _ in range(2):
        while working.size == 32:
            working.fitted(32)
        working.failed(working.size)
    working.failed(32)
    assert working.size == 16
    run(working, 64, 16 * SUCCESSES_TO_GROW[0])
    assert working.size == 18
