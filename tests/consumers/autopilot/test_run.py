"""The loop: active or standing by."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from millstream.consumers.autopilot.run import look_interval, run_until_stopped
from millstream.consumers.autopilot.words import kind_of
from millstream.consumers.observability.health import Health
from tests.consumers.autopilot.desk import Desk, pipeline_of

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class FakeTurn:
    """Each poll takes its time, and the next item of the script says whether it is our turn."""

    script: list[bool]
    stop: threading.Event
    now: float = 0.0
    is_ours: bool = False
    error: str = ""
    waits: list[float] = field(default_factory=list)

    def poll(self, timeout: float) -> None:
        self.waits.append(timeout)
        self.now += timeout
        if self.script:
            self.is_ours = self.script.pop(0)
        else:
            self.stop.set()


def run(desk: Desk, script: list[bool], **of: Any) -> FakeTurn:
    stop = threading.Event()
    turn = FakeTurn(script, stop, **of)
    run_until_stopped(desk.autopilot, turn, desk.report, Health(10), every=1.0, stop=stop, clock=lambda: turn.now)
    return turn


def test_only_the_active_one_looks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk(pipeline_of(tmp_path))
    with caplog.at_level(logging.INFO):
        run(desk, [False] * 5)
        assert desk.metric("looks_total") == 0
        assert [record.message.partition(":")[0] for record in caplog.records] == ["stands by"]
        caplog.clear()
        run(desk, [False, True, True, True, True, True, False])
    told = [record.message.partition(":")[0] for record in caplog.records]
    assert told == ["stands by", "active", "holds", "stands by"]
    assert desk.metric("looks_total") == 3  # one at once, and one each second
    assert desk.metric("active") == 0


def test_connections_are_closed_with_the_turn(tmp_path: Path) -> None:
    desk = Desk(pipeline_of(tmp_path))
    desk.start(2)
    run(desk, [True, False])
    assert [own.closed for own in desk.opened] == [True]


def test_group_that_can_not_be_joined_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(Desk(pipeline_of(tmp_path)), [False] * 4, error="not authorized")
    assert [record.message for record in caplog.records].count("the group can't be joined: not authorized") == 1


@pytest.mark.parametrize(("bake", "seconds"), [("0s", 0.5), ("1m", 3), ("10m", 10), ("3h", 10)])
def test_looks_are_a_twentieth_of_a_step_apart(tmp_path: Path, bake: str, seconds: float) -> None:
    pipeline = pipeline_of(tmp_path)
    assert pipeline.rollout is not None
    rollout = type(pipeline.rollout).model_validate({"topic": "t", "evaluations": "e", "bake": bake})
    assert look_interval(rollout) == seconds


def test_reasons_of_the_same_kind_differ_in_numbers_only() -> None:
    one, other = "12 of 1,500 labels; -0.1 [-inf, 2e-05]; 25%", "1,499 of 1,500 labels; 3 [0.1, inf]; 7%"
    assert kind_of(one) == kind_of(other)
    assert kind_of("latency [-15, 0.5]") == kind_of("latency [-15.64, 0.6]")
    assert kind_of("accuracy is not decided") != kind_of("errors is not decided")


@pytest.mark.parametrize(
    "said", ["would start version {}: rollout.candidate (latest) names version {}", "stopped v{}: 3%"]
)
def test_reasons_about_another_version_are_of_another_kind(said: str) -> None:
    assert kind_of(said.format(3, 3)) != kind_of(said.format(4, 4))
    assert kind_of(said.format(3, 3)) != kind_of(said.format(31, 31))
