"""Autopilot as its users run it: on a broker, beside real workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.consumers.evaluation.topic import read_figures
from millstream.consumers.schema_store import open_store
from tests.broker.clients import wait_until
from tests.consumers.autopilot.live import SOON, Live

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker

pytestmark = [pytest.mark.process, pytest.mark.durable]


def status_of(live: Live, capsys: pytest.CaptureFixture[str]) -> str:
    assert live.rollout("status") == 0
    return capsys.readouterr().out


@pytest.mark.full
def test_version_that_arrives_goes_to_100_percent_on_late_labels(
    kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    live = Live(tmp_path, kafka, 1, 2, candidate="latest")
    with live.worker() as worker, live.autopilot() as autopilot:
        with live.traffic():
            worker.wait_ready()
            live.wait_state("running")
            wait_until(lambda: "absolute_error" in status_of(live, capsys), SOON, "figures")
            record = live.wait_state("promoted")
        assert autopilot.get("/ready")[0] == 200
        assert autopilot.stop() == 0
        assert worker.stop() == 0
        log = autopilot.log
    assert [own.action for own in live.history()] == ["start", "watch", "promote"]
    assert record.shares == (0, 10_000)
    assert "revision 2: watch by autopilot: primary (version 1) 0 %, canary (version 2) 100 %, watching" in log
    assert live.account()["canary"] > 0
    [first, *_] = read_figures(live.pipeline, open_store(live.pipeline)).steps
    assert first.notes[0].startswith("autopilot: watch: all metrics passed: ")
    assert first.candidates[0].labels >= 50
