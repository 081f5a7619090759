"""Warnings about records, which whoever writes bad records can't make many."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from millstream.consumers.observability.seldom import LOG_INTERVAL, Kind, SeldomWarnings

if TYPE_CHECKING:
    import pytest


BAD = Kind("bad record", "bad records")


def test_warnings_come_seldom_and_act_on_no_terminal(caplog: pytest.LogCaptureFixture) -> None:
    now = 1000.0
    warnings = SeldomWarnings(lambda: now)
    with caplog.at_level(logging.WARNING):
        for _ in range(1000):
            warnings.warn(BAD, 2, "\x1b[2J" + "x" * 10_000)
        now += LOG_INTERVAL
        warnings.warn(BAD, 1, "y")
        now += LOG_INTERVAL
        warnings.warn(BAD, 1, "z")
    first, second, third = (record.getMessage() for record in caplog.records)
    assert first.startswith("2 bad records, such as: \\x1b[2J")
    assert len(first) < 1000
    assert second == "1999 bad records, such as: y"
    assert third == "1 bad record, such as: z"


def test_what_was_held_back_is_said_once_the_time_has_come(caplog: pytest.LogCaptureFixture) -> None:
    now = 1000.0
    warnings = SeldomWarnings(lambda: now)
    with caplog.at_level(logging.WARNING):
        warnings.warn(BAD, 3, "x")
        warnings.warn(BAD, 1876, "y")
        warnings.catch_up()
        assert len(caplog.records) == 1
        now += LOG_INTERVAL
        warnings.catch_up()
        warnings.catch_up()
    assert [record.getMessage() for record in caplog.records] == [
        "3 bad records, such as: x",
        "1876 bad records, such as: y",
    ]


def test_what_was_held_back_is_said_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    warnings = SeldomWarnings(lambda: 1000.0)
    with caplog.at_level(logging.WARNING):
        warnings.warn(BAD, 4, "x")
        warnings.warn(BAD, 1139, "y")
        warnings.say_all()
        warnings.say_all()
    assert [record.getMessage() for record in caplog.records][1:] == ["1139 bad records, such as: y"]
