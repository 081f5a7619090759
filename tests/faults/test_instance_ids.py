"""Two workers with the same instance ID: one of them ends and reports why, and no event is lost or doubled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.consumers.observability import metrics as m
from tests.consumers.processes import Worker
from tests.faults.service import assert_exactly_once, under_load

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker

pytestmark = pytest.mark.durable


def test_second_worker_with_an_instance_id_ends_and_the_first_goes_on(kafka: Broker, tmp_path: Path) -> None:
    with under_load(tmp_path, kafka, seed=601) as (service, fleet, stream):
        fleet.start("w0")
        fleet.wait_ready()
        pid = fleet["w0"].pid
        with Worker(service.file, "--instance-id", "w0") as second:
            assert second.wait() == 1
            said = second.log.splitlines()[-1]
        assert said.startswith(f"instance ID w0 of group {service.group} is taken by process {pid} on this machine.")
        assert "--instance-id w0-2" in said
        before = fleet["w0"].metrics()[m.PREDICTIONS.name]
        fleet["w0"].wait_for(lambda: fleet["w0"].metrics()[m.PREDICTIONS.name] > before + 1000, 60, "at work")
        assert_exactly_once(service, fleet.finish(stream))


@pytest.mark.full
def test_worker_is_fenced_by_another_machines_with_its_instance_id(kafka: Broker, tmp_path: Path) -> None:
    """Another TMPDIR simulates another machine, which doesn't see the first worker's lock."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with under_load(tmp_path, kafka, seed=602) as (service, fleet, stream):
        fleet.start("w0")
        fleet.wait_ready()
        stream.wait_for_more(1000)
        with Worker(service.file, "--instance-id", "w0", env={"TMPDIR": str(elsewhere)}) as other:
            assert fleet["w0"].wait() == 1
            log = fleet["w0"].log
            assert "another worker with this instance ID has taken over" in log
            assert "Traceback" not in log
            other.wait_ready()
            stream.wait_for_more(1000)
            # The one that was fenced may come back under an instance ID of its own.
            fleet.discard("w0")
            fleet.start("w1")
            fleet.wait_ready()
            sent = fleet.finish(stream)
            assert other.stop() == 0
        assert_exactly_once(service, sent)
