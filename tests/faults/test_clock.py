"""The workers' wall clock jumps an hour ahead and an hour back: no event is lost, doubled or reordered, no metric is absurd."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millstream.consumers.observability import metrics as m
from tests.consumers.service import prediction_of
from tests.faults.service import assert_exactly_once, under_load

if TYPE_CHECKING:
    from tests.broker.choice import Broker

HOUR = 3600 * 1_000_000_000  # ns


@pytest.mark.full
@pytest.mark.durable
def test_clock_jumps(kafka: Broker, tmp_path: Path) -> None:
    clock = tmp_path / "clock"
    program = (sys.executable, "-P", str(Path(__file__).with_name("shifted_worker.py")), str(clock))
    _set(clock, 0)
    with under_load(tmp_path, kafka, seed=1301) as (service, fleet, stream):
        fleet.start("w0", "w1", program=program)
        fleet.wait_ready()
        for shift in (HOUR, -HOUR, 0):
            fleet.wait_committed(2000)
            _set(clock, shift)
        fleet.wait_committed(2000)
        for instance_id in ("w0", "w1"):
            metrics = fleet[instance_id].metrics()
            assert {name: value for name, value in metrics.items() if value < 0} == {}
            assert metrics[f"{m.END_TO_END.name}_sum"] > 0
        sent = fleet.finish(stream)
        assert_exactly_once(service, sent)
    times = sorted(prediction_of(message)["prediction_time"] for message in service.predictions())
    assert times[-1] - times[0] > timedelta(hours=1.9)  # the jumps were seen


def _set(clock: Path, shift: int) -> None:
    """Set the clock ahead by this many ns."""
    with clock.open("r+b" if clock.exists() else "wb") as file:
        file.write(shift.to_bytes(8, "little", signed=True))
