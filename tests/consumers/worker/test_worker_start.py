"""`/live` while a worker loads its model and warms it up."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.consumers.processes import Worker
from tests.consumers.python_service import python_service

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker
    from tests.consumers.service import Service

STEPS = ("load", "first run", "warm-up")
WAITS = f"""
steps = iter({STEPS})
def wait():
    step = next(steps, "warm-up")
    (FOLDER / step).touch()
    while not (FOLDER / f"{{step}} done").exists():
        time.sleep(0.01)
"""


def slow_service(folder: Path, kafka: Broker, **limits: str) -> Service:
    """A pipeline whose model takes part in each step of a worker's start until a file says that it is done."""
    service = python_service(folder, kafka, 'wait()\nreturn {"y": -inputs["x"]}', limits=limits)
    code = folder / "models" / "number" / "1" / "model.py"
    text = code.read_text("utf-8").replace("device): pass", "device): wait()")
    code.write_text(text.replace("class Model:", f"{WAITS}class Model:"), encoding="utf-8")
    return service


def turned_ago(worker: Worker) -> float:
    """How long ago the loop turned, in seconds, as `/live` says."""
    match = re.search(r"turned ([\d.]+) s ago", worker.get("/live")[1])
    return float(match[1]) if match else 0.0


def wait_turned(worker: Worker) -> None:
    """Wait until the worker says that its loop turned anew."""
    longest = 0.0

    def turned() -> bool:
        nonlocal longest
        ago = turned_ago(worker)
        longest = max(longest, ago)
        return ago < longest

    worker.wait_for(turned, 30, "live")


def test_worker_is_live_while_its_model_loads_and_warms_up(kafka: Broker, tmp_path: Path) -> None:
    with Worker(slow_service(tmp_path, kafka).file) as worker:
        for step in STEPS:
            worker.wait_for((tmp_path / step).exists, 30, f"in the {step}")
            wait_turned(worker)
            assert worker.get("/ready")[0] == 503
            (tmp_path / f"{step} done").touch()
        worker.wait_ready()
        assert worker.stop() == 0


@pytest.mark.parametrize("step", STEPS)
def test_worker_whose_start_hangs_is_not_live(kafka: Broker, tmp_path: Path, step: str) -> None:
    for before in STEPS[: STEPS.index(step)]:
        (tmp_path / f"{before} done").touch()
    with Worker(slow_service(tmp_path, kafka, batch_timeout="1s", stall_after="2s").file) as worker:
        worker.wait_for((tmp_path / step).exists, 30, f"in the {step}")
        worker.wait_for(lambda: worker.get("/live")[0] == 503, 30, "no longer live")
