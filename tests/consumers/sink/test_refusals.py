"""Dead letters in the log: a warning now and then, and one loud line once nearly all events are refused."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from millstream.consumers.events import Rejection
from millstream.consumers.sink.refusals import ERROR_INTERVAL, FEWEST_EVENTS, WARNING_INTERVAL, Refusals
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

    def note(self, reasons: Sequence[str], events: int, apart: int = 0) -> None:
        dead = {row: Rejection(reason, f"error {row}") for row, reason in enumerate(reasons)}
        self.refusals.note(block("e" * events, 7), dead, np.arange(len(dead), events), range(apart))

    def note_backlog(self, partitions: Sequence[str]) -> None:
        """Note a block of several partitions, one after the other, of the same time: a letter an event, `d`ead or `g`ood."""
        rows = "".join(partitions)
        places = [number for number, events in enumerate(partitions) for _ in events]
        times = np.concatenate([np.arange(len(events)) for events in partitions])
        dead = {row: Rejection("unfit", f"error {row}") for row, kind in enumerate(rows) if kind == "d"}
        read = replace(block("e" * len(rows), places=places), timestamps=times)
        self.refusals.note(read, dead, np.array([row for row, kind in enumerate(rows) if kind == "g"], np.int64))

    def lines(self, level: int) -> list[str]:
        return [record.getMessage() for record in self.caplog.records if record.levelno == level]


@pytest.fixture
def noting(caplog: pytest.LogCaptureFixture) -> Noting:
    return Noting(caplog)


def test_dead_letters_are_warned_of_now_and_then_with_their_number(noting: Noting) -> None:
    noting.note([], 1000)
    for _ in range(10):
        noting.note(["unfit", "nan_output"], 50)
    noting.now += WARNING_INTERVAL
    noting.note(["expired"], 50)
    assert noting.lines(logging.WARNING) == [
        "2 events became dead letters, such as: unfit: error 0 (offset 7 of in/0)",
        "19 events became dead letters, such as: expired: error 0 (offset 7 of in/0)",
    ]
    assert not noting.lines(logging.ERROR)


def test_dead_letters_held_back_are_told_though_no_event_comes(noting: Noting) -> None:
    noting.note(["unfit"], 1000)
    noting.note(["unfit"] * 40, 1000)
    noting.refusals.catch_up()
    assert len(noting.lines(logging.WARNING)) == 1
    noting.now += WARNING_INTERVAL
    noting.refusals.catch_up()
    noting.refusals.catch_up()
    assert [line.split(",")[0] for line in noting.lines(logging.WARNING)[1:]] == ["40 events became dead letters"]


def test_dead_letters_held_back_are_told_by_the_next_events(noting: Noting) -> None:
    noting.note(["unfit"], 1000)
    noting.note(["unfit"] * 40, 1000)
    noting.note([], 10)
    assert len(noting.lines(logging.WARNING)) == 1
    noting.now += WARNING_INTERVAL
    noting.note([], 10)
    assert noting.lines(logging.WARNING)[1:] == [
        "40 events became dead letters, such as: unfit: error 0 (offset 7 of in/0)"
    ]


def test_nearly_all_refused_is_one_error_with_the_most_frequent_reason_and_commands(noting: Noting) -> None:
    for _ in range(3):
        noting.note(["nan_output", *["unfit"] * 17], FEWEST_EVENTS)
        noting.note(["unfit"] * FEWEST_EVENTS, FEWEST_EVENTS)
    [line] = noting.lines(logging.ERROR)
    assert "18 of the last 20 became dead letters, 17 of them for one reason: unfit: error 1 (offset 8 of in/0)" in line
    assert "millstream dead-letters list my/pipeline.yaml" in line
    assert "millstream dead-letters show my/pipeline.yaml PARTITION@OFFSET" in line


def test_few_refused_or_too_few_events_are_no_error(noting: Noting) -> None:
    noting.note(["unfit"] * (FEWEST_EVENTS - 1), FEWEST_EVENTS - 1)
    for _ in range(100):
        noting.note(["unfit"] * 10, 20)
        noting.note(["unfit"] * 10, 10)
    assert not noting.lines(logging.ERROR)


def test_events_that_are_refused_from_the_middle_of_the_stream_on_are_an_error_and_counted(noting: Noting) -> None:
    """A producer renames a field after an hour of good events."""
    for _ in range(3600):
        noting.note([], 400)
        noting.now += 1
    for _ in range(30):
        noting.note(["unfit"] * 50, 50)
        noting.now += 1
    [line] = noting.lines(logging.ERROR)
    assert "50 of the last 50 became dead letters, 50 of them for one reason: unfit: error 0" in line
    counts = [int(text.split()[0]) for text in noting.lines(logging.WARNING)]
    assert counts == [50, 500, 500]


def test_events_that_are_refused_again_are_another_error(noting: Noting) -> None:
    for _ in range(2):
        noting.note(["unfit"] * 100, 100)
        noting.now += ERROR_INTERVAL
        noting.note(["unfit"] * 100, 100)
        noting.note([], 100)
    assert len(noting.lines(logging.ERROR)) == 2


def test_small_batches_of_good_events_end_an_incident_too(noting: Noting) -> None:
    for _ in range(2):
        for _ in range(50):
            noting.note(["unfit"] * 2, 2)
        noting.now += ERROR_INTERVAL
        for _ in range(50):
            noting.note([], 2)
    assert len(noting.lines(logging.ERROR)) == 2


def test_a_good_event_now_and_then_does_not_end_an_incident(noting: Noting) -> None:
    for _ in range(20):
        noting.note([], 1)
        noting.note(["unfit"] * 30, 30)
        noting.now += ERROR_INTERVAL
    assert len(noting.lines(logging.ERROR)) == 1


@pytest.mark.parametrize(
    "partitions",
    [["g" * 600 + "d" * 400], ["g" * 300 + "d" * 200] * 2, ["g" * 12 + "d" * 8] * 50],
    ids=["1 partition", "2 partitions", "50 partitions"],
)
def test_a_backlog_whose_end_is_refused_is_an_error(noting: Noting, partitions: Sequence[str]) -> None:
    noting.note_backlog(partitions)
    [line] = noting.lines(logging.ERROR)
    assert line.startswith("NEARLY ALL EVENTS ARE REJECTED: 400 of the last 4")


def test_the_end_of_a_backlog_counts_together_with_the_events_after_it(noting: Noting) -> None:
    noting.note_backlog(["g" * 600 + "d" * 12])
    assert not noting.lines(logging.ERROR)
    noting.note(["unfit"] * 8, 8)
    [line] = noting.lines(logging.ERROR)
    assert "20 of the last 2" in line


@pytest.mark.parametrize("partitions", [["g" * 100 + "d" * 400 + "g" * 200], ["g" * 200, "d" * 200], ["gd" * 500]])
def test_a_backlog_whose_end_is_not_refused_is_no_error(noting: Noting, partitions: Sequence[str]) -> None:
    noting.note_backlog(partitions)
    assert not noting.lines(logging.ERROR)


def test_letters_that_are_apart_are_warned_of_but_are_not_nearly_all(noting: Noting) -> None:
    for _ in range(2 * FEWEST_EVENTS):
        noting.note(["undecodable"], 1, apart=1)
    assert noting.lines(logging.ERROR) == []
    assert len(noting.lines(logging.WARNING)) == 1
    for _ in range(FEWEST_EVENTS):
        noting.note(["undecodable", "unfit"], 2, apart=1)
    [said] = noting.lines(logging.ERROR)
    assert f"{FEWEST_EVENTS} of the last {FEWEST_EVENTS} became dead letters" in said
