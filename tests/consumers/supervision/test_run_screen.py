"""What `millstream run` shows in a terminal."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from millstream.consumers.observability.lag_metrics import LagFollower, LagLook
from millstream.consumers.supervision.autoscaler import Autoscaler, Fleet, Status
from millstream.consumers.supervision.capacity import Counters
from millstream.consumers.supervision.reading import Reading
from millstream.consumers.supervision.run_screen import STATUS_INTERVAL, Screen, status_text
from millstream.consumers.supervision.scaling import STUCK_AFTER, Policy
from millstream.topics.lag import PartitionLag
from millstream.topics.lag_trend import WINDOW_SECONDS, Trend

POLICY = Policy(2, 2, 30.0, 60.0, 1000)
READY = {number: Reading(0.0, number, True, 1, Counters(0.0, (0.0, 0.0)), "") for number in range(2)}


def status_of_two() -> Status:
    return Autoscaler(POLICY).step(0.0, Fleet(2, 0, {}), None)


@pytest.mark.parametrize(
    ("arrival", "progress", "shown"),
    [
        (0.0, 100.0, "lag 500 (9.0 s, caught up in 5 s)"),
        (100.0, 100.0, "lag 500 (9.0 s, not catching up)"),
        (None, None, "lag 500 (9.0 s)"),
    ],
)
def test_lag_has_the_time_to_drain_where_it_shrinks(arrival: float | None, progress: float | None, shown: str) -> None:
    lag = PartitionLag("t", 0, 0, 0, 500, 500, True, 9.0, 0)
    trend = None if arrival is None or progress is None else Trend(arrival, progress, 0.0)
    look = LagLook(9.0, [lag], {} if trend is None else {("t", 0): trend}, trend)
    autoscaler = Autoscaler(POLICY)
    autoscaler.step(0.0, Fleet(2, 0, READY), look)
    assert shown in status_text(autoscaler.step(WINDOW_SECONDS, Fleet(2, 0, READY), look), "")


def test_line_says_nothing_of_catching_up_until_workers_were_ready_for_some_seconds() -> None:
    lag = PartitionLag("t", 0, 0, 0, 62, 62, True, 1.9, 0)
    autoscaler, follower = Autoscaler(POLICY), LagFollower()

    def line(at: float, readings: dict[int, Reading]) -> str:
        return status_text(autoscaler.step(at, Fleet(2, 0, readings), follower.look(at, [lag])), "")

    while_workers_start = [line(float(at), {}) for at in range(10)]
    just_after = [line(10.0 + at, READY) for at in range(int(WINDOW_SECONDS))]
    assert all("lag 62 (1.9 s)" in each for each in [*while_workers_start, *just_after])
    assert "lag 62 (1.9 s, not catching up)" in line(10.0 + WINDOW_SECONDS, READY)
    assert "lag 62 (1.9 s)" in line(20.0, {})  # no worker is ready again
    assert "lag 62 (1.9 s)" in line(21.0, READY)


@pytest.mark.parametrize(("age", "shown"), [(9.0, "2/2 workers  in "), (0.1, "2/2 workers, 0% busy  in ")])
def test_workers_are_not_called_idle_while_events_wait(age: float, shown: str) -> None:
    """The first batch of a slow model has not ended yet."""
    lag = PartitionLag("t", 0, 0, 0, 500, 500, True, age, 0)
    look = LagLook(age, [lag], {}, None)
    assert status_text(Autoscaler(POLICY).step(0.0, Fleet(2, 0, READY), look), "").startswith(shown)


def test_line_counts_the_workers_that_are_ready_and_have_no_partitions() -> None:
    joined = {**READY, 1: replace(READY[1], assigned=0)}
    assert status_text(Autoscaler(POLICY).step(0.0, Fleet(2, 0, joined), None), "").startswith(
        "2/2 workers, 1 without partitions  lag"
    )
    assert "without" not in status_text(Autoscaler(POLICY).step(0.0, Fleet(2, 0, READY), None), "")


def test_line_says_which_worker_was_given_up() -> None:
    fleet = Fleet(2, 0, {0: READY[0]}, given_up=[1])
    assert status_text(Autoscaler(POLICY).step(0.0, fleet, None), "no broker answers") == (
        "1/2 workers  lag not known: no broker answers  |  the size is fixed; worker 1 was given up: exit code 3, see its last "
        "log lines"
    )


def test_line_does_not_call_a_lag_unknown_that_it_shows() -> None:
    """It was measured once, so its rates are not known."""
    look = LagFollower().look(0.0, [PartitionLag("t", 0, 0, 0, 62, 62, True, 1.9, 0)])
    line = status_text(Autoscaler(Policy(1, 4, 30.0, 60.0, 1000)).step(0.0, Fleet(2, 0, READY), look), "")
    assert line.endswith("lag 62 (1.9 s)  |  hold: the arrival rate is not known")


def test_line_shows_no_work_of_workers_that_are_gone() -> None:
    autoscaler, follower = Autoscaler(POLICY), LagFollower()
    lag = PartitionLag("t", 0, 0, 0, 62, 62, True, 1.9, 0)

    def line(at: float, **changed: Any) -> str:
        work = Counters(100 * at, (at / 2, at / 2))
        readings = {number: replace(READY[number], at=at, counters=work, **changed) for number in range(2)}
        return status_text(autoscaler.step(at, Fleet(2, 0, readings), follower.look(at, [lag])), "")

    assert "out 0/s" not in [line(float(at)) for at in range(5)][-1]
    gone = line(5.0, ready=False)
    assert gone.startswith("0/2 workers  in ")
    assert "out 0/s" in gone


def test_line_is_not_drawn_again_once_it_is_of_the_past() -> None:
    out = StringIO()
    console = Console(file=out, force_terminal=True, width=100)
    with Screen(console, plain=False, log_level="warning") as screen:
        screen.show(status_of_two(), "")
        assert "0/2 workers" in out.getvalue()
        so_far = len(out.getvalue())
        screen.end_line()
        screen.say("draining 2 workers")
        screen.say("all workers drained")
    since = out.getvalue()[so_far:]
    assert "0/2 workers" not in since
    assert since.index("-- draining 2 workers") < since.index("-- all workers drained")


def test_line_is_not_drawn_again_when_the_run_fails() -> None:
    out = StringIO()
    with Screen(Console(file=out, force_terminal=True, width=100), plain=False, log_level="warning") as screen:
        screen.show(status_of_two(), "")
        so_far = len(out.getvalue())
    assert "0/2 workers" not in out.getvalue()[so_far:]


def test_without_a_terminal_a_line_is_printed_on_change_and_once_a_minute() -> None:
    out, now = StringIO(), 1000.0
    with Screen(Console(file=out, width=100), plain=True, log_level="warning", clock=lambda: now) as screen:
        for _ in range(10):
            screen.show(status_of_two(), "")
            now += 1
        screen.show(status_of_two(), "no broker answers")
        assert [line.partition("|")[0].strip() for line in out.getvalue().splitlines()] == [
            "0/2 workers  lag not known: no response yet",
            "0/2 workers  lag not known: no broker answers",
        ]
        now += STATUS_INTERVAL
        screen.show(status_of_two(), "no broker answers")
    assert len(out.getvalue().splitlines()) == 3


@pytest.mark.parametrize("plain", [True, False])
def test_output_that_cannot_be_written_ends_nothing(plain: bool) -> None:
    class Full(StringIO):
        def write(self, _text: str) -> int:
            raise OSError(28, "No space left on device")

    with Screen(Console(file=Full(), force_terminal=not plain, width=100), plain=plain, log_level="warning") as screen:
        screen.show(status_of_two(), "")
        screen.say("draining 2 workers")
        screen.log(1, "2026-01-01 10:00:00 WARNING a line")


def test_without_a_terminal_a_line_says_that_the_workers_are_behind_and_that_they_have_caught_up() -> None:
    out = StringIO()
    autoscaler, follower = Autoscaler(POLICY), LagFollower()
    with Screen(Console(file=out, width=200), plain=True, log_level="warning", clock=lambda: 1000.0) as screen:
        for at, age in enumerate([0.2, 4.0, 9.0, 12.0, 30.0, 8.0, 2.0, 0.5, 3.0]):
            lag = PartitionLag("t", 0, 0, 0, 62, 62, True, age, 0)
            screen.show(autoscaler.step(float(at), Fleet(2, 0, READY), follower.look(float(at), [lag])), "")
    lines = out.getvalue().splitlines()
    assert ["(0.2 s" in lines[0], "(12.0 s" in lines[-2], "(0.5 s" in lines[-1]] == [True, True, True]


def test_line_promises_no_end_of_a_lag_of_which_a_partition_makes_no_progress() -> None:
    """One worker hangs, and the other one catches up, so the lag of both partitions together shrinks."""
    moving, standing = (
        PartitionLag("t", 0, 0, 0, 9000, 9000, True, 9.0, 0),
        PartitionLag("t", 1, 0, 0, 500, 500, True, 9.0, 0),
    )
    trends = {("t", 0): Trend(0.0, 100.0, 0.0), ("t", 1): Trend(0.0, 0.0, 0.0)}
    autoscaler = Autoscaler(POLICY)
    autoscaler.step(0.0, Fleet(2, 0, READY), None)

    def line(stalled: float) -> str:
        now = {**trends, ("t", 1): Trend(0.0, 0.0, stalled)}
        look = LagLook(9.0, [moving, standing], now, Trend(0.0, 100.0, 0.0))
        autoscaler.step(0.0, Fleet(2, 0, READY), look)
        return status_text(autoscaler.step(WINDOW_SECONDS, Fleet(2, 0, READY), look), "")

    assert "lag 9,500 (9.0 s, caught up in 95 s)" in line(0.0)
    assert "lag 9,500 (9.0 s, not catching up)  |  the size is fixed; 1 partition makes no progress" in line(
        STUCK_AFTER
    )


def test_workers_have_not_caught_up_while_the_age_of_a_partition_is_not_known() -> None:
    out = StringIO()
    autoscaler, follower = Autoscaler(POLICY), LagFollower()
    with Screen(Console(file=out, width=200), plain=True, log_level="warning", clock=lambda: 1000.0) as screen:
        for at, age in enumerate([30.0, 30.0, None, None]):
            lags = [
                PartitionLag("t", 0, 0, 0, 0, 0, True, 0.0, 0),
                PartitionLag("t", 1, 0, 0, 62, 62, age is not None, age, 0),
            ]
            status = autoscaler.step(float(at), Fleet(2, 0, READY), follower.look(float(at), lags))
            screen.show(status, "")
    assert "lag 62 (30.0 s)" in out.getvalue()
    assert len(out.getvalue().splitlines()) == 1
    assert "lag 62 (? s)" in status_text(status, "")


def test_line_of_a_worker_stays_as_it_is() -> None:
    out = StringIO()
    with Screen(Console(file=out, width=100), plain=True, log_level="warning") as screen:
        screen.log(1, "2026-01-01 10:00:00 WARNING bad key a:id:b [bold]")
    assert out.getvalue() == "[1] 2026-01-01 10:00:00 WARNING bad key a:id:b [bold]\n"
