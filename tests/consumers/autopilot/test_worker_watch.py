"""Whether workers run, by their consumer group."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.consumers.autopilot import worker_watch
from millstream.consumers.autopilot.worker_watch import ASK_EVERY, WorkerWatch
from tests.consumers.autopilot.desk import pipeline_of

if TYPE_CHECKING:
    from pathlib import Path


def test_broker_is_asked_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, empty, asked = 0.0, True, []

    def is_empty(_: object, group: str) -> bool:
        asked.append(group)
        return empty

    monkeypatch.setattr(worker_watch, "is_empty", is_empty)
    watch = WorkerWatch(pipeline_of(tmp_path), lambda: now)
    assert watch.absence().startswith("no worker runs: the consumer group flights has no member")
    empty, now = False, ASK_EVERY - 1
    assert watch.absence()
    now = ASK_EVERY
    assert watch.absence() == ""
    assert asked == ["flights", "flights"]
