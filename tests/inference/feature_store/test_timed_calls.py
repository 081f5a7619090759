"""Calls that take too long are left behind, and their answers are not taken for those of others."""

import threading

import pytest

from millstream.inference.feature_store.timed_calls import TimedCalls


def test_answers_and_errors_are_passed_on() -> None:
    calls = TimedCalls(timeout=60)
    assert [calls.call(lambda n=n: n) for n in range(3)] == [0, 1, 2]  # type: ignore[misc]
    with pytest.raises(ZeroDivisionError):
        calls.call(lambda: 1 // 0)
    assert calls.call(lambda: 4) == 4


def test_call_that_hangs_times_out_and_so_do_the_next_until_it_ends() -> None:
    calls, goes_on, ended = TimedCalls(timeout=0.1), threading.Event(), threading.Event()

    def hang() -> str:
        assert goes_on.wait(60)
        ended.set()
        return "late"

    for _ in range(2):
        with pytest.raises(TimeoutError, match="no answer within 100 ms"):
            calls.call(hang)
    goes_on.set()
    assert ended.wait(60)
    assert calls.call(lambda: "mine") == "mine"
    assert calls.call(lambda: "mine, too") == "mine, too"
