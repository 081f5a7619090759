"""Dead letters in the log: a warning now and then, and one loud line if nearly all of the first events are refused."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from millstream.consumers.events import Rejection
from millstream.consumers.observability.seldom import LOG_INTERVAL
from millstream.consumers.sink.refusals import FEWEST_EVENTS, FIRST_SECONDS, Refusals
from tests.consumers.in_memory import block

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass
class Noting:
    """Notes results at a time that the test sets."""

    caplog: pytest.LogCaptureFixture
    now: float = 1000.0

    def __post_init__(self) -> None:
        self.refusals = Refusals("my/pipeline.yaml", lambda: self.now)

    def note(self, reasons: Sequence[str], events: int) -> None:
        dead = {row: Rejection(reason, f"error {row}") for row, reason in enumerate(reasons)}
        self.refusals.note(block("e" * events, 7), dead, events)

    def lines(self, level: int) -> list[str]:
        return [record.getMessage() for record in self.caplog.records if record.levelno == level]


@pytest.fixture
def noting(caplog: pytest.LogCaptureFixture) -> Noting:
    return Noting(caplog)


def test_dead_letters_are_warned_of_once_a_minute_with_their_number(noting: Noting) -> None:
    noting.note([], 1000)
    for _ in range(10):
        noting.note(["unfit", "nan_output"], 50)
    noting.now += LOG_INTERVAL
    noting.note(["expired"], 50)
    assert noting.lines(logging.WARNING) == [
        "2 events became dead letters, such as: unfit: error 0 (offset 7 of in/0)",
        "19 events became dead letters, such as: expired: error 0 (offset 7 of in/0)",
    ]
    assert not noting.lines(logging.ERROR)


def test_dead_letters_held_back_are_told_by_the_next_events_after_a_minute(noting: Noting) -> None:
    noting.note(["unfit"], 1000)
    noting.note(["unfit"] * 40, 1000)
    noting.note([], 10)
    assert len(noting.lines(logging.WARNING)) == 1
    noting.now += LOG_INTERVAL
    noting.note([], 10)
    assert noting.lines(logging.WARNING)[1:] == [
        "40 events became dead letters, such as: unfit: error 0 (offset 7 of in/0)"
    ]


def test_nearly_all_refused_is_one_error_with_the_most_frequent_reason_and_commands(noting: Noting) -> None:
    for _ in range(3):
        noting.note(["nan_output", *["unfit"] * 17], FEWEST_EVENTS)
        noting.note(["unfit"] * FEWEST_EVENTS, FEWEST_EVENTS)
    [line] = noting.lines(logging.ERROR)
    assert (
        "18 of the first 20 became dead letters, 17 of them for one reason: unfit: error 1 (offset 8 of in/0)" in line
    )
    assert "millstream dead-letters list my/pipeline.yaml" in line
    assert "millstream dead-letters show my/pipeline.yaml PARTITION@OFFSET" in line


def test_few_refused_or_too_few_events_or_later_ones_are_no_error(noting: Noting) -> None:
    noting.note(["unfit"] * (FEWEST_EVENTS - 1), FEWEST_EVENTS - 1)
    noting.note(["unfit"], 10)
    noting.now += FIRST_SECONDS
    noting.note(["unfit"] * 100, 100)
    assert not noting.lines(logging.ERROR)
