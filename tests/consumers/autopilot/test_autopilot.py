"""What autopilot does at each look, with the real record, writer and strategies. An evaluator finds what it is told."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from millstream.consumers.autopilot.report import RECENT_MS
from millstream.consumers.control.errors import CommandRefusedError
from millstream.consumers.evaluation.errors import EvaluationError
from millstream.consumers.evaluation.step_state import Arrivals
from millstream.consumers.rollout.changes import Memory
from millstream.schemas.errors import SchemaUnavailable
from millstream.topics.errors import BrokerUnreachableError, TopicError
from tests.consumers.autopilot.desk import FAILING, GOOD, MINUTE, START, UNDECIDED, WORSE, Desk, pipeline_of
from tests.consumers.control.topic_in_memory import PIPELINE

if TYPE_CHECKING:
    from pathlib import Path


def desk_of(folder: Path, rollout: str = "steps: [5, 50]", more: str = "") -> Desk:
    return Desk(pipeline_of(folder, rollout, more))


def test_canary_goes_to_100_percent_step_by_step(tmp_path: Path) -> None:
    desk = desk_of(tmp_path)
    desk.start(2)
    states = [desk.state]
    for _ in range(6):
        desk.look(1)
        states.append(desk.state)
    desk.look(60)
    states.append(desk.state)
    assert states[:4] == [("running", 5), ("running", 50), ("watching", 100), ("watching", 100)]
    assert states[-1] == ("promoted", 100)
    assert [own.epoch for own in desk.published if own.notes[0].startswith("autopilot: step")] == [1]


def test_breach_goes_back_to_0_at_once(tmp_path: Path) -> None:
    desk = desk_of(tmp_path)
    desk.start(2)
    desk.found.verdicts = WORSE
    looked = desk.look(0.01)
    assert (looked.result, looked.action, desk.state) == ("change", "rollback", ("rolled_back", 0))
    assert "accuracy is too bad" in desk.record.reason
    assert desk.record.by == "autopilot"


@pytest.mark.parametrize("failing", ["publish", "webhook"])
def test_rollback_waits_for_neither_the_figures_nor_the_webhook(tmp_path: Path, failing: str) -> None:
    desk = desk_of(tmp_path)
    desk.start(2)
    desk.found.verdicts = FAILING
    if failing == "publish":
        desk.publish_error = TopicError("topic t can't be written.")
    assert desk.look().action == "rollback"
    assert desk.state == ("rolled_back", 0)


def test_step_waits_until_its_figures_are_published(tmp_path: Path) -> None:
    desk = desk_of(tmp_path)
    desk.start(2)
    desk.publish_error = TopicError("topic t can't be written.")
    looked = desk.look(1)
    assert (looked.result, looked.reason, desk.state) == ("failed", "topic t can't be written", ("running", 5))
    desk.publish_error = None
    assert desk.look().action == "step"


def test_breach_may_pause_instead(tmp_path: Path) -> None:
    desk = desk_of(tmp_path, "on_breach: pause")
    desk.start(2)
    desk.found.verdicts = WORSE
    desk.look()
    assert desk.state == ("paused", 1)
    desk.found.verdicts = GOOD
    assert desk.look(60).result == "hold"
    desk.command("resume")
    assert Memory.of(desk.record).progress.attempt == 2
    assert desk.look(1).action == "step"


def test_advice_changes_nothing_and_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    desk = desk_of(tmp_path, "mode: advise")
    desk.start(2)
    with caplog.at_level(logging.INFO):
        results = [desk.look(1) for _ in range(3)]
    assert {own.result for own in results} == {"advice"}
    assert desk.state == ("running", 1)
    assert sum("advice at revision 1: would step" in record.message for record in caplog.records) == 1
    assert [own["action"] for own in desk.sent if own["advised"]] == ["step"]
    assert desk.published[-1].notes[0].startswith("autopilot: would step: ")


def test_change_has_the_mode_that_autopilot_follows(tmp_path: Path) -> None:
    desk = desk_of(tmp_path)
    desk.start(2)
    desk.write(replace(desk.record, revision=2, replaces=1, change_id="advised", mode="advise"))
    assert desk.look(1).action == "step"
    assert desk.record.mode == "act"


def test_step_may_need_a_person(tmp_path: Path) -> None:
    desk = desk_of(tmp_path, "steps: [5, 50]\napprove: [50]")
    desk.start(2)
    assert desk.look(1).action == "await_approval"
    assert desk.look(60).reason == "waits for approval"
    assert desk.state == ("awaiting_approval", 5)
    desk.command("approve")
    assert desk.state == ("running", 50)
    assert desk.look(1).action == "watch"


def test_breach_counts_while_a_person_is_asked(tmp_path: Path) -> None:
    desk = desk_of(tmp_path, "steps: [5, 50]\napprove: [50]")
    desk.start(2)
    desk.look(1)
    desk.found.verdicts = FAILING
    assert desk.look(1).action == "rollback"


def test_too_few_labels_are_inconclusive_and_still_may_pass(tmp_path: Path) -> None:
    desk = desk_of(tmp_path, "longest: 1h")
    desk.start(2)
    desk.found.labels = 20
    looked = desk.look(5)
    assert (looked.result, looked.reason) == ("hold", "20 of 500 matured labels; 25% of the events are not matured")
    assert desk.look(60).action == "inconclusive"
    assert desk.look(10).result == "hold"
    assert desk.state == ("inconclusive", 1)
    desk.found.labels = 500
    assert desk.look(1).action == "step"


def test_reason_to_hold_is_told_when_it_changes_and_not_when_its_numbers_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    desk = desk_of(tmp_path)
    desk.start(2)
    with caplog.at_level(logging.INFO):
        for labels in (10, 11, 12):
            desk.found.labels = labels
            desk.look(2)
        assert desk.metric("holding_seconds") == 240
        desk.found.labels, desk.found.verdicts = 900, UNDECIDED
        desk.look(1)
    told = [record.message for record in caplog.records if record.message.startswith("holds")]
    assert told == [
        "holds: 10 of 500 matured labels; 25% of the events are not matured",
        "holds: accuracy is not decided: benefit +0.01 [-0.002, 0.02]",
    ]


def test_predictions_that_are_not_read_yet_are_not_missed(tmp_path: Path) -> None:
    desk = desk_of(tmp_path)
    desk.start(2)
    desk.found.arrivals, desk.found.late, desk.found.labels = Arrivals(0), 45_000, 0
    assert "no prediction" not in desk.look(1).reason
    desk.found.late = 0
    assert "no prediction since the step began" in desk.look().reason


def test_that_no_worker_runs_comes_first(tmp_path: Path) -> None:
    desk = desk_of(tmp_path)
    desk.absence = "no worker runs: the consumer group flights has no member"
    desk.start(2)
    desk.found.labels = 0
    assert desk.look(5).reason.startswith("0 of 500 matured labels"), "predictions come"
    desk.found.arrivals = Arrivals(0)
    for minutes in (0.2, 5):
        desk.look(minutes)
        assert desk.published[-1].notes[0].startswith(f"autopilot: hold: {desk.absence}; ")
    desk.found.arrivals = Arrivals(9, START, START + MINUTE)
    assert desk.look(1).reason.startswith(f"{desk.absence}; 0 of 500 matured labels"), "the workers have ended since"
    desk.found.verdicts = FAILING
    assert desk.look().action == "rollback"


def test_labels_that_are_not_read_yet_are_not_missed(tmp_path: Path) -> None:
    """As after a takeover: the next process reads the step from its beginning."""
    desk = desk_of(tmp_path)
    desk.start(2)
    desk.found.late, desk.found.labels = 45_000, 0
    assert "autopilot is still reading the topics: it has read what came until 45 s ago" in desk.look(5).reason
    desk.found.late = 0
    assert "no label came in time" in desk.look().reason


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"arrivals": Arrivals(0)}, "no prediction since the step began"),
        ({"late": 3 * MINUTE}, "the evaluation is 3 min behind"),
        ({"arrivals": Arrivals(9, START, START + 90 * MINUTE)}, "clock skew: predictions are of"),
        ({"invalid": ("the sample ratio is off: 10 events",)}, "the sample ratio is off"),
        ({"label_problem": "topic labels: Unknown topic"}, "labels can't be read: topic labels: Unknown topic"),
    ],
)
def test_doubt_holds_quality_and_errors_still_roll_back(tmp_path: Path, change: dict[str, object], says: str) -> None:
    desk = desk_of(tmp_path)
    desk.start(2)
    desk.found = replace(desk.found, **change)  # type: ignore[arg-type]
    looked = desk.look(5)
    assert looked.result == "hold"
    assert says in looked.reason
    assert says in str(desk.published[-1].notes)
    assert says in str(desk.published[-1].candidates[0].invalid), (
        "whoever shows the verdicts must know that they don't count"
    )
    desk.found.verdicts = WORSE
    assert desk.look().result == "hold"
    desk.found.verdicts = FAILING
    assert desk.look().action == "rollback"


def test_doubt_holds_a_candidate_at_100_percent_too(tmp_path: Path) -> None:
    desk = desk_of(tmp_path, "steps: [50]\nwatch: 5m")
    desk.start(2)
    assert desk.look(1).action == "watch"
    desk.found.arrivals = Arrivals(0)
    assert "no prediction" in desk.look(10).reason
    desk.found.arrivals = None
    assert desk.look().action == "promote"


def test_change_from_the_future_holds(tmp_path: Path) -> None:
    desk = desk_of(tmp_path)
    desk.now += 5 * MINUTE
    desk.start(2)
    desk.now -= 5 * MINUTE
    assert "clock skew: ann made the newest change 5 min from now" in desk.look().reason


def test_labels_that_come_back_count_again_and_the_events_are_not_read_anew(tmp_path: Path) -> None:
    desk = desk_of(tmp_path)
    desk.start(2)
    desk.found.label_problem = "topic labels: gone"
    for _ in range(30):
        assert "labels can't be read: topic labels: gone" in desk.look(1).reason
    desk.found.label_problem = ""
    assert desk.look(1).action == "step"
    assert len(desk.opened) == 1


def test_error_of_the_predictions_is_not_blamed_on_the_labels(tmp_path: Path) -> None:
    desk = desk_of(tmp_path)
    desk.start(2)
    desk.found.error = TopicError("topic predictions can't be read.")
    assert desk.look(1).reason == "topic predictions can't be read"
    desk.found.error = None
    assert desk.look(1).action == "step"


@pytest.mark.parametrize(
    "error",
    [
        BrokerUnreachableError("no broker answers."),
        SchemaUnavailable("the registry is away."),
        EvaluationError("rollout of flights, revision 1: no progress."),
        ZeroDivisionError("bug"),
    ],
)
def test_outage_leaves_the_rollout_as_it_is(tmp_path: Path, error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    desk = desk_of(tmp_path)
    desk.start(2)
    desk.found.error = error
    assert [desk.look(1).result for _ in range(2)] == ["failed", "failed"]
    assert desk.metric("failing") == 1
    assert desk.state == ("running", 5)
    assert ("an unexpected error" in caplog.text) == isinstance(error, ZeroDivisionError)
    desk.found.error = None
    assert desk.look().action == "step"
    assert desk.metric("failing") == 0


def test_unreadable_record_holds_and_a_bad_version_still_goes_back(tmp_path: Path) -> None:
    desk = desk_of(tmp_path)
    desk.start(2)
    desk.topic.rows.append((desk.record.key, b"not a record"))
    looked = desk.look(5)
    assert looked.result == "hold"
    assert "the control topic: the record at offset 1 can't be read" in looked.reason
    desk.found.verdicts = FAILING
    assert desk.look().action == "rollback"
    assert desk.state == ("rolled_back", 0)


def test_unknown_state_is_left_alone(tmp_path: Path) -> None:
    desk = desk_of(tmp_path, "candidate: latest")
    desk.names(2)
    desk.topic.rows.append((b"flights", b"not a record"))
    looked = desk.look(5)
    assert (looked.result, looked.reason[:18]) == ("failed", "the control topic:")
    assert len(desk.topic.rows) == 1


def test_strategy_state_of_another_version_holds(tmp_path: Path) -> None:
    desk = desk_of(tmp_path)
    desk.start(2)
    record = desk.record
    desk.write(replace(record, revision=2, replaces=1, change_id="x", strategy_state='{"since": "?"}'))
    assert "start the rollout anew" in desk.look(1).reason


def test_another_one_goes_on_where_a_killed_one_was(tmp_path: Path) -> None:
    desk = desk_of(tmp_path)
    desk.start(2)
    desk.look(0.5)
    desk.autopilot = desk.hire()
    assert "the step has taken 30 of 60 s" in desk.look(0).reason
    desk.autopilot = desk.hire()
    assert desk.look(0.5).action == "step"
    desk.autopilot = desk.hire()
    assert desk.look(1).action == "watch"
    assert [own.since for own in desk.opened] == [START, START, START, START + MINUTE]


def test_two_at_once_do_no_harm(tmp_path: Path) -> None:
    """The second one decides between the first one's decision and its commit."""
    desk = desk_of(tmp_path)
    desk.start(2)
    other = desk.hire()
    desk.now += MINUTE
    desk.topic.interrupt = other.look
    first = desk.autopilot.look()
    assert (first.result, first.action) == ("hold", "hold")  # it decided anew: the next step has just begun
    assert desk.state == ("running", 50)
    assert desk.record.revision == 2


def test_command_in_between_wins(tmp_path: Path) -> None:
    desk = desk_of(tmp_path)
    desk.start(2)
    desk.now += MINUTE
    desk.topic.interrupt = lambda: desk.command("pause")
    assert desk.autopilot.look().reason == "paused: resume, promote or roll back"
    assert desk.state == ("paused", 5)


def test_webhook_gets_each_change_and_not_the_old_ones(tmp_path: Path) -> None:
    desk = desk_of(tmp_path)
    desk.start(2)
    desk.autopilot.since = desk.now + 1 + RECENT_MS  # it has just got its turn
    desk.look(1)
    desk.command("pause")
    desk.look()
    assert [(own["revision"], own["action"], own["by"]) for own in desk.sent] == [
        (2, "step", "autopilot"),
        (3, "pause", "ann"),
    ]
    assert desk.sent[0]["before"] == {"state": "running", "shares": [95.0, 5.0]}
    assert desk.sent[0]["variants"][1] == {"name": "canary", "model": "delay", "version": 2, "share": 50.0}


def test_log_has_one_line_about_the_changes_before_the_turn(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    desk = desk_of(tmp_path)
    desk.start(2)
    desk.command("pause")
    desk.autopilot.since = desk.now + 2 * MINUTE
    with caplog.at_level("INFO"):
        desk.look()
        desk.now += 3 * MINUTE
        desk.command("rollback")
        desk.look()
    told = [line for line in caplog.messages if "revision" in line]
    assert [line.split(" by ")[0] for line in told] == [
        "found, changed 2 min ago: revision 2: pause",
        "revision 3: rollback",
    ]


def test_figures_say_the_reason_the_shares_and_the_revision(tmp_path: Path) -> None:
    desk = desk_of(tmp_path)
    desk.start(2)
    desk.look(0.5)
    desk.look(0.01)  # too soon for another publication
    [figures] = desk.published
    assert figures.notes == ("autopilot: hold: the step has taken 30 of 60 s",)
    assert [own.share for own in figures.variants] == [0.95, 0.05]
    assert figures.revision == 1


def test_ab_test_ends_with_its_report(tmp_path: Path) -> None:
    desk = desk_of(tmp_path, "strategy: ab\nshare: 20")
    desk.start(2)
    assert desk.look(1).action == "conclude"
    assert desk.state == ("concluded", 20)
    assert desk.published[-1].notes[0].startswith("autopilot: conclude")
    assert desk.look(60).result == "hold"


def test_concluded_test_waits_for_a_person(tmp_path: Path) -> None:
    desk = desk_of(tmp_path, "strategy: ab\nshare: 20\ncandidate: latest")
    desk.names(2)
    desk.look()
    assert desk.look(1).action == "conclude"
    desk.names(3)
    assert desk.look(60).reason == (
        "rollout.candidate (latest) names version 3, but the A/B test of version 2 is concluded: promote it, or roll it back"
    )
    assert desk.state == ("concluded", 20)
    desk.command("promote")
    assert desk.look().action == "start"
    assert [own.version for own in desk.record.variants] == [2, 3]


def test_blue_green_switches_at_once_and_back(tmp_path: Path) -> None:
    desk = desk_of(tmp_path, "strategy: blue-green", "shadows: [{version: 2}]\ncomparison: {output: score}\n")
    desk.start(2)
    assert desk.state == ("running", 0)
    assert desk.look(1).action == "watch"
    assert desk.state == ("watching", 100)
    desk.found.verdicts = FAILING
    assert desk.look(1).action == "rollback"
    assert desk.state == ("rolled_back", 0)


def test_manual_rollout_is_only_advised_on(tmp_path: Path) -> None:
    desk = desk_of(tmp_path, "strategy: manual")
    desk.start(2)
    desk.command("set", shares={"": 3000})
    desk.found.verdicts = FAILING
    looked = desk.look(1)
    assert (looked.result, looked.action, desk.state[1]) == ("advice", "rollback", 30)


def test_wanted_version_starts_by_itself_and_only_once(tmp_path: Path) -> None:
    desk = desk_of(tmp_path, "candidate: latest")
    desk.names(1)
    assert "version 1 answers already" in desk.look().reason
    desk.names(2)
    assert desk.look().action == "start"
    assert (desk.record.by, desk.record.reason) == ("autopilot", "rollout.candidate (latest) names version 2")
    desk.found.verdicts = WORSE
    assert desk.look().action == "rollback"
    desk.found.verdicts = GOOD
    for _ in range(2):
        looked = desk.look(60)
        assert looked.result == "hold"
        assert "which was tried before" in looked.reason
        desk.autopilot = desk.hire()  # another one knows it, too
    desk.start(2)  # a person may
    assert desk.look(1).action == "step"


def test_third_version_restarts_from_the_first_step(tmp_path: Path) -> None:
    desk = desk_of(tmp_path, "candidate: latest\nsteps: [5, 50]")
    desk.names(2)
    desk.look()
    desk.look(1)
    assert desk.state == ("running", 50)
    desk.names(3)
    assert desk.look(0.1).action == "restart"
    assert desk.state == ("running", 5)
    assert [own.version for own in desk.record.variants] == [1, 3]
    assert f"-{desk.record.revision}-" in desk.record.rollout
    assert "it arrived while version 2 was at 50 %" in desk.record.reason
    desk.names(2)  # the third one was withdrawn
    assert desk.look(0.1).action == "restart"


def test_breach_comes_before_a_third_version(tmp_path: Path) -> None:
    desk = desk_of(tmp_path, "candidate: latest")
    desk.names(2)
    desk.look()
    desk.names(3)
    desk.found.verdicts = WORSE
    assert desk.look().action == "rollback"
    desk.found.verdicts = GOOD
    assert desk.look().action == "start"


def test_person_who_starts_another_version_is_not_overruled(tmp_path: Path) -> None:
    desk = desk_of(tmp_path, "candidate: latest")
    desk.names(3)
    desk.look()
    desk.start(2)
    assert desk.look(0.1).result == "hold"
    assert desk.record.variants[1].version == 2
    desk.names(4)
    assert desk.look(0.1).action == "restart"


def test_paused_rollout_of_a_person_is_not_replaced(tmp_path: Path) -> None:
    desk = desk_of(tmp_path, "candidate: latest\non_breach: pause")
    desk.names(2)
    desk.look()
    desk.command("pause")
    desk.names(3)
    assert "names version 3, but ann has paused the rollout of version 2" in desk.look(1).beside
    desk.command("resume")
    assert desk.look(0.1).action == "restart"
    desk.found.verdicts = WORSE
    assert desk.look().action == "pause"
    desk.names(4)  # the correction of what a breach has paused
    assert desk.look().action == "restart"


def test_promoted_version_is_the_baseline_of_the_next_rollout(tmp_path: Path) -> None:
    desk = desk_of(tmp_path, "candidate: latest\nsteps: [50]\nwatch: 0s")
    desk.names(2)
    desk.look()
    assert desk.look(1).action == "promote"
    assert "version 2 answers already" in desk.look().reason
    desk.names(3)
    desk.look()
    assert [own.version for own in desk.record.variants] == [2, 3]


def test_candidate_that_is_not_known_or_can_not_take_part_is_told(tmp_path: Path) -> None:
    desk = desk_of(tmp_path, "candidate: latest")
    desk.names(None, "the repository is away.")
    assert desk.look().reason == "the version of rollout.candidate is not known: the repository is away"
    desk.names(2)
    desk.refusals[2] = CommandRefusedError("version 2 has another signature.")
    told = "version 2 does not start: version 2 has another signature"
    assert [desk.look(0.1).reason for _ in range(2)] == [told] * 2
    assert desk.metric("candidate_refused") == 1
    del desk.refusals[2]
    assert desk.look(0.1).reason == told  # not asked again yet
    assert desk.look(1).action == "start"
    assert desk.metric("candidate_refused") == 0


def test_breach_that_does_not_count_is_not_a_breach_in_the_metric(tmp_path: Path) -> None:
    desk = desk_of(tmp_path)
    desk.start(2)
    desk.found.verdicts, desk.found.invalid = WORSE, ("the sample ratio is off",)
    assert desk.look(1).result == "hold"
    assert desk.value("verdict", pipeline=PIPELINE, variant="canary", metric="accuracy") == 0
    desk.found.invalid = ()
    desk.look(1)
    assert desk.value("verdict", pipeline=PIPELINE, variant="canary", metric="accuracy") == -1


def test_only_a_rollout_that_is_held_has_a_time_of_holding(tmp_path: Path) -> None:
    desk = desk_of(tmp_path, "candidate: latest\nmode: advise")
    desk.names(1)
    assert (desk.look(1).result, desk.look(1).result) == ("hold", "hold")
    assert desk.metric("holding_seconds") == 0, "no rollout is on its way"
    desk.start(2)
    assert (desk.look(1).result, desk.look(1).result) == ("advice", "advice")
    assert desk.metric("holding_seconds") == 0, "an advice"
    desk.found.labels = 20
    assert (desk.look(1).result, desk.look(1).result) == ("hold", "hold")
    assert desk.metric("holding_seconds") == 60
    desk.found.error = OSError("away")
    assert (desk.look(1).result, desk.look(1).result) == ("failed", "failed")
    assert desk.metric("holding_seconds") == 0, "a failure"


def test_version_that_can_not_start_is_told_in_a_metric_and_one_that_is_fetched_is_not(tmp_path: Path) -> None:
    desk = desk_of(tmp_path, "candidate: latest")
    desk.names(None, "the repository is away.")
    desk.look()
    assert desk.metric("candidate_refused") == 1
    desk.names(2)
    desk.is_fetched = False
    desk.look()
    assert desk.metric("candidate_refused") == 0
    desk.is_fetched = True
    desk.look()
    desk.names(3)
    desk.refusals[3] = CommandRefusedError("version 3 has another signature.")
    desk.look()
    assert desk.metric("candidate_refused") == 1, "beside a rollout, too"
    desk.report.turn(is_ours=False)
    assert desk.metric("candidate_refused") == 0


@pytest.mark.parametrize("on_breach", ["rollback", "pause"])
def test_version_that_does_not_fit_leaves_the_rollout_as_it_goes(tmp_path: Path, on_breach: str) -> None:
    desk = desk_of(tmp_path, f"candidate: latest\non_breach: {on_breach}\nsteps: [5, 50]")
    desk.names(2)
    desk.look()
    desk.names(3)
    desk.refusals[3] = CommandRefusedError("version 3 has another signature.")
    looked = desk.look(0.5)
    told = "version 3 does not start: version 3 has another signature"
    assert (looked.result, looked.reason, looked.beside) == ("hold", "the step has taken 30 of 60 s", told)
    assert desk.published[-1].notes[0] == f"autopilot: hold: the step has taken 30 of 60 s; {told}"
    assert desk.look(0.5).action == "step"
    desk.found.verdicts = WORSE
    assert desk.look().action == on_breach


def test_version_that_does_not_fit_is_told_beside_an_advice(tmp_path: Path) -> None:
    desk = desk_of(tmp_path, "candidate: latest\nmode: advise")
    desk.start(2)
    desk.names(3)
    desk.refusals[3] = CommandRefusedError("version 3 has another signature.")
    looked = desk.look(1)
    assert (looked.result, looked.action) == ("advice", "step")
    assert looked.beside == "version 3 does not start: version 3 has another signature"
    assert desk.metric("failing") == 0


def test_what_is_told_beside_a_reason_is_logged_and_does_not_begin_the_time_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    desk = desk_of(tmp_path, "candidate: latest")
    desk.start(2)
    desk.names(2)
    desk.found.labels = 20
    desk.look(2)
    with caplog.at_level(logging.INFO):
        desk.names(None, "the repository is away.")
        desk.look(20)
        desk.look(20)
        desk.names(2)
        desk.look(21)
    reason = "# of # matured labels; # of the events are not matured"
    assert desk.value("holding_seconds", pipeline=PIPELINE, reason=reason) == 61 * 60
    told = "holds: 20 of 500 matured labels; 25% of the events are not matured"
    beside = "the version of rollout.candidate is not known: the repository is away"
    assert [own.message for own in caplog.records if own.message.startswith("holds")] == [f"{told}; {beside}", told]


def test_advice_to_replace_a_rollout_keeps_its_figures_fresh(tmp_path: Path) -> None:
    desk = desk_of(tmp_path, "candidate: latest\nmode: advise")
    desk.start(2)
    desk.names(3)
    looked = desk.look(1)
    assert (looked.result, looked.action) == ("advice", "restart")
    assert looked.reason.startswith(
        "would restart version 3: rollout.candidate (latest) names version 3: it arrived while"
    )
    assert desk.published[-1].notes[0].startswith("autopilot: would restart version 3")
    assert desk.record.revision == 1


def test_pause_of_a_bad_version_comes_before_a_third_version(tmp_path: Path) -> None:
    desk = desk_of(tmp_path, "candidate: latest\non_breach: pause")
    desk.names(2)
    desk.look()
    desk.names(3)
    desk.found.verdicts = WORSE
    assert desk.look().action == "pause"
    assert desk.look().action == "restart"


def test_version_that_is_still_being_fetched_delays_no_decision(tmp_path: Path) -> None:
    desk = desk_of(tmp_path, "candidate: latest\nsteps: [5, 50]")
    desk.names(2)
    desk.look()
    desk.names(3)
    desk.is_fetched = False
    assert desk.look(0.5).beside == "version 3 is being fetched and checked"
    assert desk.look(0.5).action == "step"
    desk.found.verdicts = FAILING
    assert desk.look().action == "rollback"
    assert desk.look().reason == "version 3 is being fetched and checked"
    desk.is_fetched = True
    assert desk.look().action == "start"


def test_advice_to_start(tmp_path: Path) -> None:
    desk = desk_of(tmp_path, "candidate: latest\nmode: advise")
    desk.names(2)
    looked = desk.look()
    assert (looked.result, looked.reason) == (
        "advice",
        "would start version 2: rollout.candidate (latest) names version 2",
    )
    assert desk.topic.rows == []
    desk.look()
    desk.names(3)
    desk.look()
    assert [own["reason"] for own in desk.sent] == [
        f"would start version {version}: rollout.candidate (latest) names version {version}" for version in (2, 3)
    ]


def test_advice_to_start_is_published_for_status(tmp_path: Path) -> None:
    desk = desk_of(tmp_path, "candidate: latest\nmode: advise")
    desk.names(2)
    for _ in range(5):
        desk.look(0.1)
    desk.names(1)
    desk.look(0.1)
    desk.look(2)  # it says it again, so that people see that it runs
    answers = "autopilot: no rollout: version 1 answers already, and is the newest one that is wanted"
    assert [own.notes for own in desk.published] == [
        ("autopilot: would start version 2: rollout.candidate (latest) names version 2",),
        (answers,),
        (answers,),
    ]
    assert {own.epoch for own in desk.published} == {0}, "no step's figures"


def test_figures_and_verdicts_are_metrics_until_the_rollout_ends(tmp_path: Path) -> None:
    desk = desk_of(tmp_path)
    desk.start(2)
    desk.found.verdicts = UNDECIDED
    desk.look(1)
    variant = {"pipeline": PIPELINE, "variant": "canary"}
    assert desk.value("figure", **variant, metric="errors") == 0.25
    assert [desk.value("verdict", **variant, metric=own) for own in ("accuracy", "errors")] == [0, 1]
    desk.found.verdicts = FAILING
    desk.look(1)
    assert desk.value("verdict", **variant, metric="errors") == -1
    desk.look(1)
    assert desk.value("figure", **variant, metric="errors") is None


def test_reason_of_a_hold_is_a_label_without_its_numbers(tmp_path: Path) -> None:
    desk = desk_of(tmp_path)
    desk.start(2)
    desk.look(0.25)
    desk.look(0.25)
    assert desk.value("holding_seconds", pipeline=PIPELINE, reason="the step has taken # of # s") == 15
    desk.look(1)
    assert desk.metric("holding_seconds") == 0, "it has gone on"


def test_nothing_to_do_is_told(tmp_path: Path) -> None:
    assert desk_of(tmp_path).look().reason == "no rollout is on its way: `millstream rollout start` starts one"


def test_rollout_that_starts_anew_does_not_wait_for_a_clock_that_was_ahead(tmp_path: Path) -> None:
    desk = desk_of(tmp_path)
    desk.start(2)
    desk.now += 300 * MINUTE
    desk.command("pause")
    desk.now -= 300 * MINUTE
    desk.command("rollback")
    desk.start(2)
    desk.look(1)
    assert desk.state == ("running", 50)


def test_decision_of_a_process_that_was_stopped_is_made_anew(tmp_path: Path) -> None:
    """Frozen just before the commit, while another autopilot has found a doubt, and so has changed nothing."""
    desk = desk_of(tmp_path)
    desk.start(2)

    def frozen() -> None:
        desk.now += 30 * MINUTE
        desk.found.invalid = ("the sample ratio is off",)

    desk.topic.interrupt = frozen
    looked = desk.look(1)
    assert (looked.result, desk.state) == ("hold", ("running", 5))
    assert "the sample ratio is off" in looked.reason


def test_rollout_after_the_record_was_deleted_is_evaluated_by_its_own_events(tmp_path: Path) -> None:
    """Revisions begin at 1 again, so only the ID tells the rollouts apart."""
    desk = desk_of(tmp_path)
    desk.start(2)
    desk.look()
    before = desk.record
    desk.topic.rows.append((before.key, None))
    desk.start(3)
    desk.look()
    assert desk.record.revision == before.revision
    assert desk.record.rollout != before.rollout
    assert [own.record.variants[1].version for own in desk.opened] == [2, 3]
    assert desk.opened[0].closed
