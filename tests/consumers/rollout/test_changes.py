"""The records that starts, decisions and commands lead to."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.consumers.rollout.bandit import BanditSettings, Rewards, updated
from millstream.consumers.rollout.changes import (
    Command,
    Entry,
    Memory,
    allowed,
    commanded_record,
    decided_record,
    standing,
    started_record,
)
from millstream.consumers.rollout.progress import BadCommandError, Decision
from millstream.consumers.rollout.record import RolloutRecord
from millstream.consumers.rollout.revisions import Change
from millstream.consumers.rollout.routing import route
from millstream.consumers.rollout.steps import BLUE_GREEN, CANARY, MANUAL, Steps
from millstream.pipeline.shares import SLOTS

STEPS = {"canary": CANARY, "blue-green": BLUE_GREEN, "manual": MANUAL, "bandit": MANUAL}
KEYS = [f"key-{number}".encode() for number in range(2000)]


def change(action: str = "set", reason: str = "because", at: int = 1_000) -> Change:
    return Change(f"{action}-{at}", at, "alice", action, reason)


def entry(strategy: str = "canary", *candidates: int, baseline: int = 1, share: int | None = None) -> Entry:
    versions = candidates or (2,)
    names = tuple(f"v{version}" for version in versions) if strategy == "bandit" else ("canary",)
    return Entry("flights", "delay", baseline, versions, ("primary", *names), strategy, share=share)


def begun(strategy: str = "canary", *candidates: int) -> RolloutRecord:
    return started_record(STEPS[strategy], entry(strategy, *candidates), None, change("start", ""))


def after(record: RolloutRecord, name: str, at: int = 2_000, **options: Any) -> RolloutRecord:
    command = Command(name, **options)
    return commanded_record(STEPS[record.strategy], record, command, change(name, at=at))


def test_canary_starts_at_its_first_step() -> None:
    record = begun()
    assert (record.revision, record.replaces, record.action) == (1, 0, "start")
    assert (record.shares, record.state, record.rollout) == ((9_900, 100), "running", "flights-canary-1-start-")
    assert record.reason == "delay 2 starts at 1 %"
    assert [(own.name, own.version) for own in record.variants] == [("primary", 1), ("canary", 2)]


def test_rollout_of_a_topic_that_was_created_anew_has_another_id() -> None:
    """Figures of the earlier rollout may still be on the topic of evaluations."""
    one, other = (
        started_record(CANARY, entry(), None, Change(change_id, 1_000, "alice", "start", ""))
        for change_id in ("3f9a01c2", "b7702d11")
    )
    assert (one.rollout, one.revision) == ("flights-canary-1-3f9a01", other.revision)
    assert one.rollout != other.rollout


def test_first_share_may_be_chosen() -> None:
    record = started_record(MANUAL, entry("manual", share=SLOTS), None, change("start"))
    assert (record.shares, record.reason) == ((0, SLOTS), "because")


def test_version_that_arrives_midway_starts_from_the_first_step_with_other_keys() -> None:
    at_five = after(begun(), "step")
    record = started_record(CANARY, entry("canary", 3), at_five, change("start", ""))
    assert (record.action, record.shares, record.before_shares) == ("restart", (9_900, 100), (9_500, 500))
    assert record.reason == "delay 3 arrived while delay 2 was at 5 %: it starts from the first step"
    assert record.rollout != at_five.rollout
    first, second = (set(route(own.plan(), KEYS).rows(1).tolist()) for own in (begun(), record))
    assert len(first & second) < min(len(first), len(second)) / 2


@pytest.mark.parametrize(
    ("commands", "version"), [(["promote"], 2), (["rollback"], 1), (["promote", "rollback"], 1), (["pause"], 1)]
)
def test_next_baseline_is_what_answers_at_the_end(commands: list[str], version: int) -> None:
    record = begun()
    for at, name in enumerate(commands, 2):
        record = after(record, name, at=1_000 * at)
    assert standing(record).version == version


def test_commands_say_what_was_before() -> None:
    record = after(begun(), "step")
    assert (record.shares, record.before_shares, record.before_state) == ((9_500, 500), (9_900, 100), "running")
    record = after(record, "pause")
    assert (record.state, record.shares) == ("paused", (9_500, 500))
    record = after(record, "promote")
    assert (record.state, record.shares, record.emergency) == ("promoted", (0, SLOTS), True)
    record = after(record, "rollback")
    assert (record.state, record.shares, record.before_state) == ("rolled_back", (SLOTS, 0), "promoted")
    with pytest.raises(BadCommandError, match=r"rolled_back, which allows start$"):
        after(record, "promote")


def test_manual_rollout_goes_on_running() -> None:
    record = after(begun("manual"), "set", shares={"": 1_000})
    assert (record.state, record.shares) == ("running", (9_000, 1_000))
    record = after(record, "set", shares={"canary": 500})
    assert record.shares == (9_500, 500)
    assert "step" not in allowed(record)
    held = after(after(record, "pause"), "set", shares={"": 300})
    assert (held.state, held.shares) == ("paused", (9_700, 300))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"shares": {"": SLOTS + 1}}, r"from 0 % to 100 % together, found canary 100\.01 %"),
        ({"shares": {"": -1}}, r"found canary -0\.01 %"),
        ({"shares": {"primary": 5}}, "expected shares of canary, found one of primary, which gets the rest"),
        ({"shares": {"green": 5}}, "variant: expected one of primary, canary, found green"),
        ({"keys": {b"a": "green"}}, "variant: expected one of primary, canary, found green"),
        ({"fields": {("country", "DE"): "v3"}}, "variant: expected one of primary, canary, found v3"),
        ({}, "expected a share or an override, found neither"),
    ],
)
def test_what_cannot_be_set_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(BadCommandError, match=says):
        after(begun("manual"), "set", **options)


@pytest.mark.parametrize("name", ["step", "promote", "rollback", "pause", "set"])
@pytest.mark.parametrize("strategy", ["canary", "bandit"])
def test_every_command_needs_a_reason(name: str, strategy: str) -> None:
    command = Command(name, shares={"" if strategy == "canary" else "v2": 5}, variant="")
    with pytest.raises(BadCommandError, match="expected a reason"):
        commanded_record(STEPS[strategy], begun(strategy), command, change(name, reason=" "))


def test_overrides_are_added_replaced_and_removed() -> None:
    record = after(begun(), "set", keys={b"a": "canary", b"b": "primary"}, fields={("country", "DE"): "canary"})
    record = after(record, "set", fields={("country", "AT"): "canary", ("tier", "gold"): "primary"})
    assert dict(record.keys) == {b"a": 1, b"b": 0}
    assert [(own.field, own.values, own.variant) for own in record.fields] == [
        ("country", frozenset({"DE", "AT"}), 1),
        ("tier", frozenset({"gold"}), 0),
    ]
    assert (record.state, record.shares) == ("running", (9_900, 100))
    record = after(
        record, "set", keys={b"a": "", b"b": "canary"}, fields={("country", "DE"): "primary", ("country", "AT"): ""}
    )
    assert dict(record.keys) == {b"b": 1}
    assert {(own.field, value, own.variant) for own in record.fields for value in own.values} == {
        ("country", "DE", 0),
        ("tier", "gold", 0),
    }


@pytest.mark.parametrize("name", ["rollback", "promote"])
def test_overrides_end_with_the_rollout(name: str) -> None:
    record = after(begun(), "set", keys={b"a": "canary"}, fields={("country", "DE"): "primary"})
    ended = after(record, name)
    assert (ended.keys, ended.fields) == ((), ())
    with pytest.raises(BadCommandError, match="nothing to override"):
        after(ended, "set", keys={b"a": "canary"})


def test_overrides_alone_leave_the_step_as_it_is() -> None:
    record = after(begun(), "set", keys={b"a": "canary"}, at=9_000)
    assert Memory.of(record) == Memory.of(begun())


def test_times_never_run_backwards() -> None:
    record = after(after(begun(), "step", at=9_000), "step", at=10)
    assert record.at == 9_000
    assert Memory.of(record).progress.since == 9_000


def test_bandit_starts_with_equal_shares_and_remembers_its_arms() -> None:
    record = begun("bandit", 2, 3)
    assert record.shares == (3_400, 3_300, 3_300)
    memory = Memory.of(record)
    assert memory.arms is not None
    assert memory.arms.shares == record.shares
    arms = updated(BanditSettings(3), memory.arms, [Rewards(100, own, own) for own in (10, 90, 50)], [False] * 3)
    next_one = decided_record(record, Decision("set", "rewards", memory.progress), change(), arms, arms.shares)
    assert next_one.shares == arms.shares
    assert Memory.of(next_one).arms == arms


def test_commands_of_a_bandit() -> None:
    record = begun("bandit", 2, 3)
    assert allowed(record) == ("promote", "rollback", "pause", "set")
    with pytest.raises(BadCommandError, match="step: the bandit of delay 2, 3 is running, which allows promote"):
        after(record, "step")
    with pytest.raises(BadCommandError, match="variant: expected one of primary, v2, v3, found none"):
        after(record, "promote")
    held = after(record, "set", shares={"v2": 1_000})
    assert (held.state, held.shares) == ("paused", (5_700, 1_000, 3_300))
    arms = Memory.of(held).arms
    assert arms is not None
    assert arms.shares == held.shares
    with pytest.raises(BadCommandError, match=r"v2 60 %, v3 60 % \(120 %\)"):
        after(record, "set", shares={"v2": 6_000, "v3": 6_000})
    assert after(held, "resume").state == "running"
    promoted = after(held, "promote", variant="v3")
    assert (promoted.shares, standing(promoted).version) == ((0, 0, SLOTS), 3)
    assert after(promoted, "rollback").shares == (SLOTS, 0, 0)


@pytest.mark.parametrize("text", ["{}", '{"state": "quarantined"}', "[1]"])
def test_state_of_another_version_is_refused_but_can_be_replaced(text: str) -> None:
    record = replace(begun(), state="quarantined", strategy_state=text)
    with pytest.raises(ValueError, match="start the rollout anew"):
        after(record, "pause")
    assert started_record(CANARY, entry("canary", 3), record, change("start")).revision == 2


def test_arms_that_are_none_are_refused() -> None:
    record = begun("bandit", 2)
    state = json.loads(record.strategy_state) | {"arms": {"weights": 5}}
    with pytest.raises(ValueError, match="arms of a bandit"):
        Memory.of(replace(record, strategy_state=json.dumps(state)))


COMMANDS = st.tuples(
    st.sampled_from(["step", "promote", "rollback", "pause", "resume", "approve", "set", "start"]),
    st.integers(-100, SLOTS + 100),
)


@given(st.lists(COMMANDS, max_size=12), st.sampled_from(["canary", "blue-green", "manual"]))
def test_any_commands_lead_to_whole_shares_and_their_history(commands: list[tuple[str, int]], strategy: str) -> None:
    """A refused command changes nothing, so a person can't bring a rollout into a state that none can read."""
    record, steps = begun(strategy), replace(STEPS[strategy], approvals=frozenset({1}))
    for at, (name, share) in enumerate(commands, 2):
        try:
            found = _commanded(steps, record, name, share, at)
        except BadCommandError:
            continue
        assert sum(found.shares) == SLOTS
        assert (found.replaces, found.revision) == (record.revision, record.revision + 1)
        assert (found.before_state, found.before_shares) == (record.state, record.shares)
        assert found.shares[1] == Memory.of(found).progress.share
        record = found


def _commanded(steps: Steps, record: RolloutRecord, name: str, share: int, at: int) -> RolloutRecord:
    if name == "start":
        return started_record(steps, entry(record.strategy, 2 + at), record, change("start", "", at))
    shares = {"": share} if name == "set" else {}
    return commanded_record(steps, record, Command(name, shares=shares), change(name, at=at))
