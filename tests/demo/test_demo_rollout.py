"""The arithmetic of the rollout demo: what it counts, and when it says that all came true."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from millstream.consumers.demo.flights import departures
from millstream.consumers.demo.rollout.account import Account, Answer, Choice, account
from millstream.consumers.demo.rollout.feed import Flights
from millstream.consumers.demo.rollout.screen import LINE_WIDTH, interval_text, picture
from millstream.consumers.demo.rollout.story import expectations
from millstream.consumers.rollout.record import RolloutRecord, RolloutVariant
from millstream.consumers.rollout.routing import route
from millstream.consumers.rollout.slots import reallocated, whole
from millstream.consumers.rollout.verdicts import Verdict
from millstream.pipeline.shares import SLOTS

if TYPE_CHECKING:
    from collections.abc import Callable

EVENTS = 400
STEPS = (2000, 5000)
SCORES = {version: np.full(EVENTS, version / 10, np.float32) for version in (1, 2, 3)}


def record(revision: int, baseline: int, candidate: int, share: int, **changes: str) -> RolloutRecord:
    told = {"by": "autopilot", "action": "step", "reason": "all metrics passed", "state": "running", **changes}
    return RolloutRecord(
        "flights", revision, revision - 1, "", 1000 * revision, told["by"], told["action"], told["reason"],
        f"flights-canary-{candidate}", "canary", told["state"],
        (RolloutVariant("primary", "delay", baseline), RolloutVariant("canary", "delay", candidate)),
        reallocated(whole(), (SLOTS - share, share)),
    )  # fmt: skip


STORY = (
    record(1, 1, 2, 2000, action="start", reason="shadow better (version 2) has won over 9 s"),
    record(2, 1, 2, 5000),
    record(3, 1, 2, SLOTS, action="watch", state="watching"),
    record(4, 1, 2, SLOTS, action="promote", state="promoted"),
    record(5, 2, 3, 2000, action="start", reason="rollout.candidate (next) names version 3"),
    record(6, 2, 3, 0, action="rollback", state="rolled_back", reason="accuracy is too bad: benefit -0.2 [-0.3, -0.1]"),
)


def answers() -> list[Answer]:
    """A quarter of the events before any rollout, the others with a fifth for version 2."""
    found = []
    plan = STORY[0].plan()
    for number in range(EVENTS):
        if number < EVENTS // 4:
            found.append(Answer(number, f"event {number}", 1, "primary", 0.1))
            continue
        variant = STORY[0].variants[int(route(plan, [f"event {number}".encode()]).variant[0])]
        choice = Choice(1, variant.name, randomised=True, model_ms=0.3)
        found.append(Answer(number, f"event {number}", variant.version, variant.name, variant.version / 10, choice))
    return found


def counted(found: list[Answer]) -> Account:
    return account(EVENTS, found, {own.revision: own for own in STORY}, SCORES, baseline=1)


def test_each_event_has_one_answer_of_the_version_that_it_names() -> None:
    found = counted(answers())
    assert found.adds_up
    assert sum(found.versions.values()) == EVENTS
    assert 30 < found.versions[2] < 90


def test_baseline_has_the_events_of_a_version_that_is_being_loaded() -> None:
    found = answers()
    place = next(place for place, own in enumerate(found) if own.version == 2)
    loading = Choice(1, "primary", randomised=False, model_ms=0.3)
    found[place] = replace(found[place], version=1, variant="primary", score=0.1, choice=loading)
    assert counted(found).adds_up


def unknown_revision(own: Answer) -> Answer:
    assert own.choice is not None
    return replace(own, choice=replace(own.choice, revision=99))


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("missing", lambda _: []),
        ("twice", lambda own: [own, own]),
        ("strangers", lambda own: [own, replace(own, number=None)]),
        ("strangers", lambda own: [own, replace(own, number=EVENTS)]),
        ("misrouted", lambda own: [replace(own, event_id="event of another slot 3")]),
        ("misrouted", lambda own: [unknown_revision(own)]),
        ("misrouted", lambda own: [replace(own, version=3, score=0.3)]),
        ("misrouted", lambda own: [replace(own, choice=None)]),
        ("fallbacks", lambda own: [replace(own, variant="primary", version=1, score=0.1)]),
        ("misnamed", lambda own: [replace(own, score=0.1)]),
        ("misnamed", lambda own: [replace(own, score=float("nan"))]),
    ],
)
def test_event_that_is_not_as_it_should_be_is_counted(what: str, change: Callable[[Answer], list[Answer]]) -> None:
    found = answers()
    place = next(place for place, own in enumerate(found) if own.version == 2)
    found[place : place + 1] = change(found[place])
    result = counted(found)
    assert getattr(result, what) == 1
    assert not result.adds_up


def test_story_came_true() -> None:
    assert [own.came_true for own in expectations(STORY, STEPS)] == [True] * 5


@pytest.mark.parametrize(
    ("place", "change", "wrong"),
    [
        (0, {"reason": "rollout.candidate (2) names version 2"}, [0]),
        (1, {"ranges": STORY[0].ranges}, [1]),
        (3, {"state": "rolled_back"}, [1]),
        (4, {"ranges": STORY[1].ranges}, [2]),
        (5, {"reason": "latency_p50 is too bad: benefit -3 [-4, -2]; accuracy is not decided"}, [3]),
        (5, {"action": "hold", "state": "running"}, [3]),
        (5, {"by": "ana"}, [4]),
    ],
)
def test_what_did_not_come_true_is_found(place: int, change: dict[str, object], wrong: list[int]) -> None:
    story = list(STORY)
    story[place] = replace(story[place], **change)  # type: ignore[arg-type]
    found = expectations(story, STEPS)
    assert [number for number, own in enumerate(found) if not own.came_true] == wrong


def test_nothing_came_true_without_a_rollout() -> None:
    assert not any(own.came_true for own in expectations((), STEPS))


def test_outcomes_come_when_the_flights_have_landed() -> None:
    rows = departures([9]).head(500)
    flights, events = Flights(rows), 2 * len(rows)
    known, named = 0, []
    for sent in range(1, events + 1):
        landed, known = flights.landings(sent, known)
        named += [flight for flight, _ in landed]
        departed = flights.rows(sent - 1, sent)
        assert flights.number_of(departed["id"][0]) == sent - 1
        assert departed["id"][0] not in {flight for flight, _ in landed}, "it has just left"
    assert len(named) == known == len(set(named))
    first = rows.filter(rows["late"].is_not_null())["id"].to_list()
    assert sorted(own for own in named if "#" not in own) == sorted(first), "all of the first round have landed"
    assert any(own.endswith("#2") for own in named)


def test_interval_is_shown_in_points_and_on_a_line() -> None:
    found = Verdict("accuracy", "pass", 0.1, 0.05, 0.15)
    assert interval_text(found) == "accuracy +10.0 points [+5.0, +15.0]"
    line = picture(found)
    assert len(line) == LINE_WIDTH
    middle = LINE_WIDTH // 2
    assert middle < line.index("[") < line.index("●") < line.index("]")
    assert line[middle] == "│"
    assert interval_text(Verdict("accuracy", "undecided")) == "accuracy not known yet"
    early = Verdict("accuracy", "undecided", -0.9, float("-inf"), float("inf"))
    assert "too few labels" in interval_text(early)
    assert picture(early)[0] in "[●"
