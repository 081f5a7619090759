"""Each strategy from its start to its end on real workers, and autopilots and workers that are killed in the middle of steps."""

from __future__ import annotations

import random
import signal
import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient

from millstream.consumers.evaluation.topic import read_figures
from millstream.consumers.rollout.progress import Progress
from millstream.consumers.schema_store import open_store
from tests.broker.clients import wait_until
from tests.consumers.autopilot.live import ROLLOUT, SOON, Live
from tests.consumers.serving.versions import CONFIG, delete_version, write_version

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker

pytestmark = [pytest.mark.durable, pytest.mark.full]


def actions(live: Live) -> list[str]:
    return [own.action for own in live.history()]


def test_canary_goes_on_through_kills_of_everything(kafka: Broker, tmp_path: Path) -> None:
    """Two autopilots and two workers. The active autopilot and a worker are killed again and again, at any moment."""
    chance = random.Random(29)
    once = {"delivery": "exactly_once", "limits": {"crash_attempts": 1000}}
    live = Live(tmp_path, kafka, 1, 2, candidate="latest", steps=[20, 60], bake="8s", watch="8s", sections=once)
    workers, pilots = [live.worker(), live.worker()], [live.autopilot(), live.autopilot()]
    logs: list[str] = []
    kills = 0
    try:
        with live.traffic(200):
            while (newest := live.newest()) is None or newest.state != "promoted":
                time.sleep(chance.uniform(4, 16))
                active = next((own for own in pilots if own.is_active()), None)
                if active is None:
                    continue  # the other one waits for the session timeout
                kills += 1
                assert kills < 20, "\n".join(own.log for own in pilots)
                active.stop(signal.SIGKILL)
                logs.append(active.log)
                pilots[pilots.index(active)] = live.autopilot()
                if kills % 3 == 0:
                    place = chance.randrange(2)
                    workers[place].stop(signal.SIGKILL)
                    workers[place] = live.worker()
        for pilot in pilots:
            pilot.wait_for(lambda own=pilot: "stands by" in own.log or own.is_active(), 60, "started")  # type: ignore[misc]
        assert [own.stop() for own in (*pilots, *workers)] == [0] * 4
    finally:
        for own in (*pilots, *workers):
            own.__exit__(None, None, None)
    assert kills >= 3
    assert actions(live) == ["start", "step", "watch", "promote"]
    assert "Traceback" not in "".join([*logs, *(own.log for own in pilots)])
    assert live.account()["canary"] > 0


def test_version_that_is_worse_is_rolled_back_and_not_tried_again(kafka: Broker, tmp_path: Path) -> None:
    live = Live(tmp_path, kafka, 1, 3, truth=1.0, candidate="latest")
    with live.worker(), live.autopilot() as autopilot, live.traffic():
        record = live.wait_state("rolled_back")
        autopilot.wait_for(lambda: "which was tried before" in autopilot.log, 60, "waiting for another version")
    assert record.reason.startswith("absolute_error is too bad: benefit -1.9")
    assert actions(live) == ["start", "rollback"]
    counts = live.account()
    assert counts["primary"] > counts["canary"] > 0


def test_version_that_no_worker_can_load_is_rolled_back(kafka: Broker, tmp_path: Path) -> None:
    live = Live(tmp_path, kafka, 1)
    progress = Progress("vector 9", share=5000, since=time.time_ns() // 1_000_000)
    live.start(50, 50, rollout="broken", versions=(1, 9), strategy="canary", strategy_state=progress.to_json())
    with live.worker(), live.autopilot(), live.traffic():
        record = live.wait_state("rolled_back")
    assert record.reason.startswith("errors is too bad")
    assert live.account() == {"primary": live.sent}


def test_version_that_does_not_fit_stops_no_other_rollout(kafka: Broker, tmp_path: Path) -> None:
    live = Live(tmp_path, kafka, 1, 2, candidate="latest", sections={"model": {"poll_interval": "1s"}})
    other = CONFIG | {"outputs": [{"tensor": "score", "name": "another"}]}
    with live.worker(), live.autopilot() as autopilot, live.traffic():
        live.wait_state("running")
        write_version(live.models, 3, config=other)
        live.wait_state("promoted")
        delete_version(live.models, 3)
        write_version(live.models, 4)
        wait_until(lambda: actions(live).count("start") == 2, SOON, "version 4 to start")
    assert "version 3 does not start: " in autopilot.log
    assert "the rollout stays as it is" not in autopilot.log
    assert actions(live)[:4] == ["start", "watch", "promote", "start"]
    newest = live.newest()
    assert newest is not None
    assert [own.version for own in newest.variants] == [2, 4]


def test_blue_green_switches_at_once(kafka: Broker, tmp_path: Path) -> None:
    live = Live(
        tmp_path,
        kafka,
        1,
        2,
        strategy="blue-green",
        steps=None,
        sections={"shadows": [{"version": 2, "sample_rate": 1.0}]},
    )
    assert live.rollout("start", "2") == 0
    with live.worker(), live.autopilot(), live.traffic():
        live.wait_state("promoted")
    assert actions(live) == ["start", "watch", "promote"]
    assert live.account()["canary"] > 0


def test_shadow_that_wins_becomes_a_canary(kafka: Broker, tmp_path: Path) -> None:
    live = Live(
        tmp_path, kafka, 1, 2, start_after_shadow="5s", sections={"shadows": [{"version": 2, "sample_rate": 1.0}]}
    )
    with live.worker(), live.autopilot() as autopilot, live.traffic():
        live.wait_state("promoted")
        autopilot.wait_for(lambda: "holds: shadow" in autopilot.log, 5, "judging the shadow before")
    assert actions(live) == ["start", "watch", "promote"]
    assert "(version 2) has won over" in live.history()[0].reason
    assert live.account()["canary"] > 0


def test_ab_test_ends_with_a_report(kafka: Broker, tmp_path: Path) -> None:
    live = Live(tmp_path, kafka, 1, 2, strategy="ab", steps=None, share=40)
    assert live.rollout("start", "2") == 0
    with live.worker(), live.autopilot(), live.traffic():
        record = live.wait_state("concluded")
    assert (record.action, record.shares) == ("conclude", (6000, 4000))
    assert live.account()["canary"] > 0
    [figures] = read_figures(live.pipeline, open_store(live.pipeline)).steps
    assert figures.notes[0].startswith("autopilot: conclude")
    verdicts = {own.metric: own for own in figures.candidates[0].verdicts if own.segment is None}
    error = verdicts["absolute_error"]
    assert error.lower is not None
    assert error.upper is not None
    assert error.lower < 1 - 12 / 350 < error.upper  # the labels are 12 / 350 away from their truth, on average
    assert live.rollout("promote", "--reason", "the report says so") == 0
    assert live.wait_state("promoted").emergency


def test_bandit_follows_the_rewards(kafka: Broker, tmp_path: Path) -> None:
    reward = {"field": "truth", "margin": 5, "better": "lower"}
    metrics = {name: own for name, own in ROLLOUT["metrics"].items() if name != "absolute_error"} | {"reward": reward}
    live = Live(
        tmp_path, kafka, 1, 2, strategy="bandit", steps=None, arms=[2], candidate=None, discount=0.9,
        metrics=metrics,
    )  # fmt: skip
    assert live.rollout("start", "2") == 0
    with live.worker(), live.autopilot(), live.traffic():
        wait_until(lambda: len(live.history()) > 3, SOON, "three updates of the shares")
    assert set(actions(live)) == {"start", "set"}
    assert all(own.shares[0] + own.shares[1] == 10_000 and min(own.shares) >= 100 for own in live.history())
    assert set(live.account()) == {"primary", "v2"}


def test_manual_rollout_is_only_advised_on(kafka: Broker, tmp_path: Path) -> None:
    live = Live(tmp_path, kafka, 1, 2, truth=1.0, strategy="manual", steps=None)
    assert live.rollout("start", "2") == 0
    assert live.rollout("set", "--share", "50%", "--reason", "half of them") == 0
    with live.worker(), live.autopilot() as autopilot, live.traffic():
        autopilot.wait_for(lambda: "would rollback: absolute_error is too bad" in autopilot.log, SOON, "giving advice")
        assert live.rollout("rollback", "--reason", "autopilot advises it") == 0
        autopilot.wait_for(lambda: "rollback by" in autopilot.log, 30, "aware of the command")
    assert actions(live) == ["start", "set", "rollback"]
    live.account()


def test_step_waits_for_a_person(kafka: Broker, tmp_path: Path) -> None:
    live = Live(tmp_path, kafka, 1, 2, candidate="latest", approve=[100])
    with live.worker(), live.autopilot() as autopilot, live.traffic():
        live.wait_state("awaiting_approval")
        autopilot.wait_for(lambda: "holds: waits for approval" in autopilot.log, 30, "waiting")
        assert live.newest() is not None
        assert live.rollout("approve", "--reason", "as planned", "--by", "ann") == 0
        live.wait_state("promoted")
    assert actions(live) == ["start", "await_approval", "approve", "promote"]
    live.account()


def test_frozen_autopilot_that_wakes_up_does_no_harm(kafka: Broker, tmp_path: Path) -> None:
    live = Live(tmp_path, kafka, 1, 2, candidate="latest", steps=[20, 60], bake="6s")
    with live.worker(), live.autopilot() as first, live.traffic():
        first.wait_active()
        with live.autopilot() as second:
            second.wait_for(lambda: "stands by" in second.log, 60, "standing by")
            live.wait_state("running")
            first.send(signal.SIGSTOP)
            try:
                second.wait_active()
            finally:
                first.send(signal.SIGCONT)
            live.wait_state("promoted")
            assert second.stop() == 0
    assert actions(live) == ["start", "step", "watch", "promote"]
    live.account()


def test_without_workers_or_labels_it_holds_and_says_why(kafka: Broker, tmp_path: Path) -> None:
    live = Live(tmp_path, kafka, 1, 2, candidate="latest")
    with live.autopilot() as autopilot:
        autopilot.wait_for(lambda: "holds: " in autopilot.log, 60, "holding")
        autopilot.wait_for(lambda: "no prediction since the step began" in autopilot.log, 90, "missing the workers")
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.delete_topics([live.labels])[live.labels].result(30)
        autopilot.stop(signal.SIGKILL)
    with live.autopilot() as autopilot:
        autopilot.wait_for(
            lambda: f"labels can't be read: topic {live.labels}" in autopilot.log, 90, "missing the labels"
        )
        assert autopilot.stop() == 0
    assert actions(live) == ["start"]
    newest = live.newest()
    assert newest is not None
    assert newest.state == "running"
    assert newest.shares == (5000, 5000)
