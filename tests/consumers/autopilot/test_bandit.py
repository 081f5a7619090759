"""Bandits: shares follow rewards, arms with a breach are stopped, and nothing is counted twice."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from millstream.consumers.rollout.bandit import Arms, Rewards, updated
from millstream.consumers.rollout.changes import Memory
from millstream.consumers.rollout.declared import bandit_settings
from tests.consumers.autopilot.desk import FAILING, GOOD, MINUTE, START, WORSE, Desk, pipeline_of

if TYPE_CHECKING:
    from pathlib import Path

BANDIT = """\
strategy: bandit
arms: [2, 3]
longest: 1h
metrics: {reward: {field: revenue, margin: 0.5}}
"""
THIRD_BEST = (Rewards(500, 100, 100), Rewards(500, 100, 100), Rewards(9000, 9000, 9000))
FIRST_BEST = (Rewards(500, 100, 100), Rewards(500, 300, 300), Rewards(500, 100, 100))
NONE = (Rewards(0, 0, 0),) * 3


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(pipeline_of(tmp_path, BANDIT))
    desk.start(2, 3)
    desk.found.rewards = FIRST_BEST
    return desk


def shares(desk: Desk) -> tuple[int, ...]:
    return tuple(own // 100 for own in desk.record.shares)


def test_shares_follow_the_rewards(desk: Desk) -> None:
    assert shares(desk) == (34, 33, 33)
    looked = desk.look(1)
    assert (looked.action, desk.record.state) == ("set", "running")
    assert looked.reason == "rewards: primary 0.2 -> 1 %, v2 0.6 -> 98 %, v3 0.2 -> 1 %"
    assert shares(desk) == (1, 98, 1)
    assert Memory.of(desk.record).progress.share == 9900


def test_each_reward_counts_once_also_after_a_restart(desk: Desk) -> None:
    desk.look(1)
    desk.autopilot = desk.hire()
    assert "the shares were updated 30 s ago" in desk.look(0.5).reason
    desk.found.rewards = THIRD_BEST
    assert desk.look(0.5).action == "set"
    assert desk.asked[-1] == (START + MINUTE, START + 2 * MINUTE)
    arms = Memory.of(desk.record).arms
    assert arms is not None
    assert arms.until == START + 2 * MINUTE


def test_rewards_are_only_taken_if_an_update_is_due(desk: Desk) -> None:
    """They take long with many events, and a breach would wait for them at each look."""
    desk.look(1)
    desk.asked.clear()
    assert "the shares were updated 30 s ago" in desk.look(0.5).reason
    desk.by_candidate = {1: FAILING}
    assert desk.look(0.1).action == "set"
    desk.command("pause")
    desk.look(5)
    assert desk.asked == []


def test_update_without_another_share_is_not_written(desk: Desk) -> None:
    """Until a share changes, each look takes the rewards since the last change again, minute by minute."""
    desk.look(1)
    for minutes in (1, 2, 3):
        looked = desk.look(1)
        assert (looked.result, looked.reason[:26]) == ("hold", "no share changes by 1 %: p")
        begun = [START + (1 + number) * MINUTE for number in range(minutes)]
        assert desk.asked[-minutes:] == [(own, own + MINUTE) for own in begun]
    assert desk.record.revision == 2
    desk.found.rewards = THIRD_BEST
    assert desk.look(1).action == "set"
    assert desk.asked[-4] == (START + MINUTE, START + 2 * MINUTE)


def test_tenth_update_without_another_share_is_written(desk: Desk) -> None:
    """Otherwise, each look would take more rewards than the one before."""
    desk.look(1)
    assert {desk.look(1).action for _ in range(9)} == {"hold"}
    assert desk.look(1).action == "set"
    assert (desk.record.revision, shares(desk)) == (3, (1, 98, 1))
    arms = Memory.of(desk.record).arms
    assert arms is not None
    assert arms.until == START + 11 * MINUTE


def test_updates_that_are_not_written_lead_to_the_same_arms(desk: Desk) -> None:
    """Rewards fade in each period, whether it ends with a change or not."""
    for _ in range(11):
        desk.look(1)
    arms = Memory.of(desk.record).arms
    assert arms is not None
    expected = Arms.fresh(3)
    for _ in range(11):
        expected = updated(bandit_settings(desk.rollout), expected, FIRST_BEST, (False,) * 3)
    assert arms.weights == pytest.approx(expected.weights)
    assert arms.shares == expected.shares


def test_change_by_a_person_loses_no_reward(desk: Desk) -> None:
    desk.look(1)
    desk.now += MINUTE
    desk.command("pause")
    desk.look(1)
    desk.command("resume")
    desk.look(1)
    assert desk.asked[-1][0] == START + MINUTE


def test_without_rewards_nothing_changes(desk: Desk) -> None:
    desk.found.rewards = NONE
    assert "no reward has matured" in desk.look(5).reason
    assert desk.record.revision == 1


def test_arm_with_a_breach_gets_no_more_events(desk: Desk) -> None:
    desk.look(1)
    desk.by_candidate = {1: FAILING}
    assert desk.look(0.1).action == "set"
    assert desk.record.reason.startswith("stopped v2: errors is too bad")
    assert shares(desk)[1] == 0
    assert desk.look(0.1).result == "hold"  # it is told once


def test_arm_that_is_stopped_while_labels_are_away_loses_no_reward(desk: Desk) -> None:
    """Errors stop an arm although labels can't be read. The rewards of that time count once they can."""
    desk.look(1)
    before = Memory.of(desk.record).arms
    desk.found.label_problem, desk.found.rewards = "topic labels: gone", NONE
    desk.by_candidate = {1: FAILING}
    assert desk.look(10).action == "set"
    after = Memory.of(desk.record).arms
    assert before is not None
    assert after == replace(before, stopped=(False, True, False), shares=desk.record.shares)
    assert shares(desk)[1] == 0
    desk.found.label_problem, desk.found.rewards = "", FIRST_BEST
    desk.asked.clear()
    assert desk.look(1).action == "set"
    assert (desk.asked[0][0], desk.asked[-1][1]) == (START + MINUTE, desk.now)


def test_arm_that_is_stopped_does_not_hold_the_others(desk: Desk) -> None:
    desk.by_candidate = {1: FAILING}
    assert desk.look(0.1).action == "set"
    desk.invalid_of = {1: ("labels come more often for one variant",)}
    desk.found.rewards = THIRD_BEST
    assert desk.look(1).reason.startswith("rewards: ")
    desk.invalid_of = {2: ("labels come more often for one variant",)}
    assert desk.look(1).reason == "labels come more often for one variant"


def test_last_arm_with_a_breach_ends_the_rollout(desk: Desk) -> None:
    desk.found.verdicts = FAILING
    assert desk.look(0.1).action == "rollback"
    assert (desk.record.state, shares(desk)) == ("rolled_back", (100, 0, 0))


def test_breach_may_pause_a_bandit(tmp_path: Path) -> None:
    desk = Desk(pipeline_of(tmp_path, f"{BANDIT}on_breach: pause"))
    desk.start(2, 3)
    desk.found.rewards = FIRST_BEST
    desk.by_candidate = {2: FAILING}
    assert desk.look().action == "pause"
    assert "paused" in desk.look(5).reason
    assert shares(desk) == (34, 33, 33)


def test_invalid_comparison_holds_quality(desk: Desk) -> None:
    desk.found.verdicts, desk.found.invalid = WORSE, ("labels come more often for one variant",)
    assert desk.look(5).reason == "labels come more often for one variant"
    desk.found = replace(desk.found, invalid=(), verdicts=GOOD, late=5 * MINUTE)
    assert "behind" in desk.look().reason


def test_guardrails_begin_anew_after_the_longest_time(desk: Desk) -> None:
    for _ in range(61):
        desk.look(1)
    progress = Memory.of(desk.record).progress
    assert (progress.epoch, progress.since) == (2, START + 60 * MINUTE)
    assert [own.since for own in desk.opened] == [START, START + 60 * MINUTE]


def test_rewards_of_before_a_new_step_are_read_before_an_update(desk: Desk) -> None:
    """After a restart, the reading begins with the events whose rewards had not matured. An update without them loses them."""
    for _ in range(60):
        desk.look(1)
    assert Memory.of(desk.record).progress.since == desk.now
    desk.found.late = MINUTE + 5000
    desk.asked.clear()
    assert desk.look(1).reason == "rewards of before the step are read first: 0 records are not read yet"
    assert desk.asked == []
    desk.found.late = 0
    desk.look(0.1)
    assert desk.asked != []


def test_advice_on_a_bandit(tmp_path: Path) -> None:
    desk = Desk(pipeline_of(tmp_path, f"{BANDIT}mode: advise"))
    desk.start(2, 3)
    desk.found.rewards = FIRST_BEST
    looked = desk.look(1)
    assert (looked.result, looked.reason[:17]) == ("advice", "would set: reward")
    assert desk.record.revision == 1
