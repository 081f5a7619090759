"""Rollouts in steps: what moves a share, what never does, and that a process may be killed at any point."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.consumers.rollout.progress import BadCommandError, Decision, Evaluation, Progress
from millstream.consumers.rollout.steps import (
    AB_TEST,
    BLUE_GREEN,
    CANARY,
    MANUAL,
    Steps,
    allowed_commands,
    commanded,
    decided,
    started,
)
from millstream.consumers.rollout.verdicts import Verdict
from millstream.pipeline.shares import SLOTS

PASS = (Verdict("loss", "pass"), Verdict("errors", "pass", service=True))
OPEN = (Verdict("loss", "undecided"), Verdict("errors", "pass", service=True))
WORSE = (Verdict("loss", "breach"), Verdict("errors", "pass", service=True))
FAILING = (Verdict("loss", "pass"), Verdict("errors", "breach", service=True))
SLOW_CANARY = replace(CANARY, bake_ms=1000, least_labels=50, longest_ms=9000)


def evaluation(
    progress: Progress, verdicts: tuple[Verdict, ...] = PASS, *, after: int = 1000, **changed: Any
) -> Evaluation:
    usual: dict[str, Any] = {
        "epoch": progress.epoch, "now": progress.since + after, "labels": 50, "verdicts": verdicts,
    }  # fmt: skip
    return Evaluation(**usual | changed)


def test_canary_goes_through_its_steps_to_100_percent() -> None:
    progress = started(SLOW_CANARY, "delay:2", 0).progress
    shares = [progress.share]
    while not progress.ended:
        found = decided(SLOW_CANARY, progress, evaluation(progress))
        assert "loss is good enough" in found.reason
        progress = found.progress
        shares.append(progress.share)
    assert shares == [100, 500, 2500, 5000, SLOTS]
    assert progress.state == "promoted"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"after": 999}, "the step has taken 0.999 of 1 s"),
        ({"after": -5000}, "the step has taken 0 of 1 s"),  # a clock that is wrong
        ({"labels": 49, "unmatured_share": 0.25}, "49 of 50 matured labels; 25% of the events are not matured"),
        ({"labels": 0, "unmatured_share": 0.75}, "0 of 50 matured labels; 75% of the events are not matured"),
        (
            {"labels": 0, "unmatured_share": 0.1},
            "0 of 50 matured labels, although 90% of the events are matured: no label",
        ),
        (
            {"labels": 0, "unmatured_share": 0.1, "late": 20_000},  # after a takeover
            "0 of 50 matured labels; autopilot is still reading the topics: it has read what came until 20 s ago",
        ),
        ({"verdicts": OPEN}, "loss is not decided"),
        ({"verdicts": ()}, "no metric has a result"),
        ({"verdicts": (Verdict("loss", "pass", segment="DE"),)}, "no metric has a result"),
        (
            {"invalid": ("the canary has 3 % of the events instead of 5 %",)},
            "the comparison is invalid: the canary has 3 %",
        ),
        ({"invalid": ("skewed",), "verdicts": WORSE}, "the comparison is invalid: skewed"),
        ({"epoch": 7}, "the evaluation is of step 7, but step 1 has begun"),
    ],
)
def test_anything_missing_holds_and_says_why(changed: dict[str, Any], reason: str) -> None:
    progress = started(SLOW_CANARY, "delay:2", 0).progress
    found = decided(SLOW_CANARY, progress, evaluation(progress, **changed))
    assert (found.action, found.progress) == ("hold", progress)
    assert found.reason.startswith(reason)


@pytest.mark.parametrize("verdicts", [WORSE, FAILING, (*PASS, Verdict("loss", "breach", segment="country=DE"))])
@pytest.mark.parametrize("strategy", [SLOW_CANARY, AB_TEST, BLUE_GREEN, replace(SLOW_CANARY, bake_ms=10**9)])
def test_breach_rolls_back_at_once(strategy: Steps, verdicts: tuple[Verdict, ...]) -> None:
    progress = started(strategy, "delay:2", 0).progress
    found = decided(strategy, progress, evaluation(progress, verdicts, after=0, labels=0))
    assert (found.action, found.progress.share, found.progress.state) == ("rollback", 0, "rolled_back")
    assert "is too bad" in found.reason


def test_errors_roll_back_even_if_the_sample_ratio_is_off() -> None:
    progress = started(SLOW_CANARY, "delay:2", 0).progress
    found = decided(SLOW_CANARY, progress, evaluation(progress, FAILING, invalid=("skewed",)))
    assert found.action == "rollback"


def test_breach_may_pause_instead() -> None:
    strategy = replace(SLOW_CANARY, on_breach="pause")
    progress = started(strategy, "delay:2", 0).progress
    found = decided(strategy, progress, evaluation(progress, WORSE))
    assert (found.action, found.progress.share, found.progress.state) == ("pause", 100, "paused")
    again = decided(strategy, found.progress, evaluation(found.progress, WORSE))
    assert (again.action, again.reason) == ("hold", "paused: loss is too bad")
    still = decided(strategy, found.progress, evaluation(found.progress, PASS))
    assert still.action == "hold"


def test_advice_changes_nothing() -> None:
    strategy = replace(SLOW_CANARY, mode="advise")
    progress = started(strategy, "delay:2", 0).progress
    for verdicts, said in ((PASS, "would step: all metrics passed"), (WORSE, "would rollback: loss is too bad")):
        found = decided(strategy, progress, evaluation(progress, verdicts))
        assert found.advised
        assert found.progress == progress
        assert found.reason.startswith(said)


def test_step_waits_for_approval() -> None:
    strategy = replace(SLOW_CANARY, approvals=frozenset({1, 4}))
    progress = started(strategy, "delay:2", 0).progress
    waiting = decided(strategy, progress, evaluation(progress))
    assert (waiting.action, waiting.progress.share) == ("await_approval", 100)
    held = decided(strategy, waiting.progress, evaluation(waiting.progress))
    assert (held.action, held.reason) == ("hold", "waits for approval")
    approved = commanded(strategy, waiting.progress, "approve", now=5000, reason="looks good")
    assert (approved.action, approved.progress.share, approved.emergency) == ("step", 500, False)


def test_step_that_takes_too_long_is_inconclusive_and_may_still_pass() -> None:
    progress = started(SLOW_CANARY, "delay:2", 0).progress
    found = decided(SLOW_CANARY, progress, evaluation(progress, OPEN, after=9000))
    assert (found.action, found.progress.share) == ("inconclusive", 100)
    assert found.reason == "inconclusive: loss is not decided"
    assert decided(SLOW_CANARY, found.progress, evaluation(found.progress, OPEN, after=9500)).action == "hold"
    assert decided(SLOW_CANARY, found.progress, evaluation(found.progress, after=9999)).action == "step"


def test_third_version_restarts_from_the_first_step() -> None:
    progress = started(SLOW_CANARY, "delay:2", 0).progress
    progress = decided(SLOW_CANARY, progress, evaluation(progress)).progress
    found = started(SLOW_CANARY, "delay:3", 7000, progress)
    assert (found.action, found.progress.share, found.progress.since) == ("restart", 100, 7000)
    assert found.reason == "delay:3 arrived while delay:2 was at 5 %: it starts from the first step"
    after = replace(progress, state="rolled_back")
    assert started(SLOW_CANARY, "delay:3", 7000, after).action == "start"


def test_blue_green_switches_at_once_and_back() -> None:
    strategy = replace(BLUE_GREEN, watch_ms=5000)
    progress = started(strategy, "delay:2", 0).progress
    assert progress.share == 0
    switched = decided(strategy, progress, evaluation(progress))
    assert (switched.action, switched.progress.share, switched.progress.state) == ("watch", SLOTS, "watching")
    watched = switched.progress
    assert decided(strategy, watched, evaluation(watched, after=4999)).action == "hold"
    assert decided(strategy, watched, evaluation(watched, (), after=5000)).reason == "no metric has a result"
    # At 100 %, quality has no baseline.
    promoted = decided(strategy, watched, evaluation(watched, OPEN, after=5000))
    assert (promoted.action, promoted.reason) == ("promote", "errors and latency passed: errors is good enough")
    back = decided(strategy, watched, evaluation(watched, FAILING, after=1))
    assert (back.action, back.progress.share) == ("rollback", 0)


def test_ab_test_ends_with_its_report() -> None:
    strategy = replace(AB_TEST, shares=(3000,))
    progress = started(strategy, "delay:2", 0).progress
    assert progress.share == 3000
    found = decided(strategy, progress, evaluation(progress))
    assert (found.action, found.progress.share, found.progress.state) == ("conclude", 3000, "concluded")
    assert decided(strategy, found.progress, evaluation(found.progress, WORSE)).action == "hold"
    chosen = commanded(strategy, found.progress, "promote", now=9, reason="better by 2 %")
    assert chosen.progress.share == SLOTS


def test_manual_rollout_only_follows_commands() -> None:
    strategy = MANUAL
    progress = started(strategy, "delay:2", 0).progress
    for verdicts in (PASS, WORSE):
        assert decided(strategy, progress, evaluation(progress, verdicts)).progress == progress
    found = commanded(strategy, progress, "set", now=1, reason="a first try", share=300)
    assert found.progress.share == 300
    with pytest.raises(BadCommandError, match="set a share, or promote"):
        commanded(strategy, progress, "step", now=1, reason="next")
    with pytest.raises(BadCommandError, match="expected a share from 0 % to 100 %"):
        commanded(strategy, progress, "set", now=1, reason="oops", share=SLOTS + 1)


def test_emergency_promotion_needs_a_reason_and_is_marked() -> None:
    progress = started(SLOW_CANARY, "delay:2", 0).progress
    with pytest.raises(BadCommandError, match="promote: expected a reason, found none"):
        commanded(SLOW_CANARY, progress, "promote", now=1, reason="  ")
    found = commanded(SLOW_CANARY, progress, "promote", now=1, reason="version 1 is down")
    assert (found.progress.share, found.progress.state, found.emergency) == (SLOTS, "promoted", True)


def test_resumed_step_is_judged_anew_at_a_smaller_level() -> None:
    progress = started(SLOW_CANARY, "delay:2", 0).progress
    paused = commanded(SLOW_CANARY, progress, "pause", now=10, reason="holiday").progress
    resumed = commanded(SLOW_CANARY, paused, "resume", now=20, reason="back").progress
    assert (resumed.share, resumed.epoch, resumed.attempt, resumed.since) == (100, 2, 2, 20)
    stale = decided(SLOW_CANARY, resumed, evaluation(progress, after=5000))
    assert stale.action == "hold"
    assert decided(SLOW_CANARY, resumed, evaluation(resumed)).progress.attempt == 1  # of the next step


def test_events_from_before_a_resume_never_count_again_but_at_100_percent_no_others_of_the_baseline_come() -> None:
    progress = started(SLOW_CANARY, "delay:2", 0).progress
    paused = commanded(SLOW_CANARY, progress, "pause", now=10, reason="outage").progress
    resumed = commanded(SLOW_CANARY, paused, "resume", now=20, reason="it is over").progress
    assert resumed.resumed == 20
    watching = resumed.begun(4, SLOTS, 30, "watching")
    assert watching.resumed == 20
    paused = commanded(SLOW_CANARY, watching, "pause", now=40, reason="outage").progress
    again = commanded(SLOW_CANARY, paused, "resume", now=50, reason="it is over").progress
    assert (again.since, again.resumed, again.state) == (50, 20, "watching")


def test_progress_that_an_older_version_wrote_is_read() -> None:
    progress = Progress("a", since=5)
    older = progress.to_json().replace(', "resumed": 0', "")
    assert "resumed" not in older
    assert Progress.from_json(older) == progress


def test_step_after_a_set_share_is_the_next_larger_one() -> None:
    progress = started(SLOW_CANARY, "delay:2", 0).progress
    larger = commanded(SLOW_CANARY, progress, "set", now=1, reason="faster", share=3000).progress
    running = commanded(SLOW_CANARY, larger, "resume", now=2, reason="go on").progress
    assert decided(SLOW_CANARY, running, evaluation(running)).progress.share == 5000


@pytest.mark.parametrize(("approved", "share"), [(4, 6000), (3, 2500), (3, 4999)])
def test_set_share_skips_no_approval(approved: int, share: int) -> None:
    strategy = replace(SLOW_CANARY, approvals=frozenset({approved}))
    progress = started(strategy, "delay:2", 0).progress
    larger = commanded(strategy, progress, "set", now=1, reason="faster", share=share).progress
    running = commanded(strategy, larger, "resume", now=2, reason="go on").progress
    found = decided(strategy, running, evaluation(running))
    assert (found.action, found.progress.share) == ("await_approval", share)
    approving = commanded(strategy, found.progress, "approve", now=3, reason="agreed")
    assert approving.progress.share == (*strategy.shares, SLOTS)[approved]


def test_state_that_does_not_allow_a_command_says_what_it_allows() -> None:
    progress = replace(started(SLOW_CANARY, "delay:2", 0).progress, state="promoted")
    with pytest.raises(BadCommandError, match=r"the rollout of delay:2 is promoted, which allows rollback, start$"):
        commanded(SLOW_CANARY, progress, "step", now=1, reason="go")


@pytest.mark.parametrize("wrong", [(500, 100), (100, 100), (-1,), (SLOTS + 1,)])
def test_steps_must_rise(wrong: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="steps: expected rising shares"):
        Steps(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "{}",
        "[]",
        Progress("a").to_json().replace("running", "lost"),
        Progress("a", share=-1).to_json(),
        Progress("a", step=10**9).to_json(),
        Progress("a").to_json().replace('"since": 0', '"since": NaN'),
        Progress("a").to_json().replace('"epoch": 1', '"epoch": "1"'),
        Progress("a").to_json().replace('"a"', "5"),
        Progress("a", attempts=(-1,)).to_json(),
    ],
)
def test_progress_that_is_damaged_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="progress of a rollout: expected the JSON that Millstream wrote"):
        Progress.from_json(wrong)


VERDICTS = st.lists(
    st.builds(
        Verdict,
        st.sampled_from(["loss", "errors"]),
        st.sampled_from(["pass", "breach", "undecided"]),
        segment=st.sampled_from([None, None, "country=DE"]),
        service=st.booleans(),
    ),
    max_size=3,
).map(tuple)
LOOKS = st.builds(
    lambda verdicts, seconds, labels, stale, invalid: ("look", verdicts, seconds, labels, stale, invalid),
    VERDICTS | st.just(PASS),
    st.integers(-2, 20),
    st.integers(0, 60),
    st.sampled_from([0, 0, 0, 1]),
    st.sampled_from([(), (), (), ("skewed",)]),
)
COMMANDS = st.tuples(
    st.just("command"),
    st.sampled_from(["step", "promote", "rollback", "pause", "resume", "approve", "set"]),
    st.integers(0, SLOTS),
)
STRATEGIES = st.builds(
    lambda strategy, breach, mode, gates: replace(strategy, on_breach=breach, mode=mode, approvals=frozenset(gates)),
    st.sampled_from(
        [SLOW_CANARY, CANARY, replace(BLUE_GREEN, bake_ms=500, watch_ms=2000), replace(AB_TEST, bake_ms=1000), MANUAL]
    ),
    st.sampled_from(["rollback", "pause"]),
    st.sampled_from(["act", "advise"]),
    st.sets(st.integers(1, 4), max_size=2),
)


def follow(strategy: Steps, progress: Progress, now: int, event: Any) -> Decision | None:
    if event[0] == "look":
        _, verdicts, _, labels, stale, invalid = event
        return decided(strategy, progress, Evaluation(progress.epoch - stale, now, labels, verdicts, invalid))
    try:
        return commanded(strategy, progress, event[1], now=now, reason="a person's", share=event[2])
    except BadCommandError:
        return None


@settings(max_examples=400)
@given(STRATEGIES, st.lists(LOOKS | COMMANDS, max_size=25))
def test_no_promotion_is_silent_and_every_breach_acts(strategy: Steps, events: list[Any]) -> None:
    now = 100_000  # clocks may go back, but not before 1970
    progress = started(strategy, "delay:2", now).progress
    for event in events:
        now += event[2] * 1000 if event[0] == "look" else 1
        found = follow(strategy, progress, now, event)
        # Killed here, and started again from what was written.
        assert found == follow(strategy, Progress.from_json(progress.to_json()), now, event)
        if found is None:
            continue
        after = found.progress
        assert found.reason
        assert 0 <= after.share <= SLOTS
        assert after.epoch >= progress.epoch
        assert after.share == progress.share or (after.epoch > progress.epoch) or after.ended
        if event[0] == "look":
            check_look(strategy, progress, now, event, found)
        elif after.share > progress.share:
            assert event[1] in ("set", "promote", "step", "approve")
            assert found.emergency == (event[1] in ("promote", "step"))
        progress = after


def check_look(strategy: Steps, before: Progress, now: int, event: Any, found: Decision) -> None:
    _, verdicts, _, labels, stale, invalid = event
    after = found.progress
    breached = any(own.outcome == "breach" and (own.service or not invalid) for own in verdicts)
    if strategy.mode == "advise" or before.ended or stale:
        assert after == before
        return
    if breached:
        assert after.share == (0 if strategy.on_breach == "rollback" else before.share)
        assert after.state == ("rolled_back" if strategy.on_breach == "rollback" else "paused")
    if after.share > before.share or after.state in ("promoted", "concluded"):
        watching = before.state == "watching"
        assert before.state in ("running", "inconclusive", "watching")
        assert not breached
        assert all(own.outcome == "pass" for own in verdicts if own.service or not watching)
        assert any(own.segment is None for own in verdicts)
        assert watching or not invalid
        assert watching or labels >= strategy.least_labels
        assert now - before.since >= (strategy.watch_ms if watching else strategy.bake_ms)
        shares = (*strategy.shares, SLOTS)
        assert watching or after.state == "concluded" or shares.index(after.share) not in strategy.approvals


def test_allowed_commands_are_possible() -> None:
    for state in (
        "running",
        "inconclusive",
        "awaiting_approval",
        "paused",
        "watching",
        "promoted",
        "concluded",
        "rolled_back",
    ):
        progress = replace(started(SLOW_CANARY, "delay:2", 0).progress, state=state)
        for command in allowed_commands(progress):
            assert commanded(SLOW_CANARY, progress, command, now=1, reason="try", share=5).action != "hold"
