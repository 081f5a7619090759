"""The rate of a replay."""

from millstream.consumers.replay.pace import Pace


def test_no_rate_is_no_limit() -> None:
    pace = Pace(None, 0.0)
    pace.took(10_000)
    assert (pace.room(4096, 0.0), pace.wait()) == (4096, 0.0)


def test_rate_holds_over_a_long_time_and_after_a_pause() -> None:
    pace, now, taken = Pace(1000.0, 0.0), 0.0, 0
    while now < 10:
        room = pace.room(4096, now)
        pace.took(room)
        taken += room
        now += 0.05 if now < 5 or now > 8 else 3.0  # one pause of three seconds
    assert 6_500 <= taken <= 7_500  # the pause does not count


def test_wait_leads_to_the_next_event() -> None:
    pace = Pace(2.0, 0.0)
    assert pace.room(10, 0.0) == 1
    pace.took(1)
    assert pace.room(10, 0.1) == 0
    assert pace.room(10, 0.1 + pace.wait() + 1e-9) == 1
