"""At least once: killed workers may double results, and never lose one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.faults.checker import RIGHT
from tests.faults.service import under_load, verdict_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker


@pytest.mark.durable
def test_killed_workers_lose_nothing(kafka: Broker, tmp_path: Path, full: bool) -> None:
    with under_load(tmp_path, kafka, seed=801, delivery="at_least_once") as (service, fleet, stream):
        fleet.start("w0", "w1")
        for _ in range(10 if full else 1):
            fleet.wait_written()
            fleet.kill("w0", "w1")
            # Nothing is committed that has no result, at any time.
            assert verdict_of(service, list(stream.acknowledged)).skipped == ()
            fleet.start("w0", "w1")
        sent = fleet.finish(stream)
        assert replace(verdict_of(service, sent), doubled=()) == RIGHT
