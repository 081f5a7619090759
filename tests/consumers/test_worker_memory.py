"""A worker's memory does not grow with the events it has seen."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.load import vector_events, write_load
from tests.consumers.processes import Worker
from tests.consumers.service import vector_service

if TYPE_CHECKING:
    from tests.broker.choice import Broker

PIECE = 100_000
GROWTH = 8  # MiB in 100,000 events: a leak of one small object an event would be more


@pytest.mark.durable
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the memory of a process from /proc")
def test_memory_is_flat(kafka: Broker, tmp_path: Path) -> None:
    service = vector_service(tmp_path, kafka, limits={"held_events": 4096})
    load = vector_events(PIECE, seed=19)
    resident = []
    with Worker(service.file) as worker:
        for number in range(1, 5):
            write_load(kafka.bootstrap, service.inputs[0], load)
            service.wait_written(number * PIECE)
            resident.append(_resident_mib(worker.pid))
        print("resident MiB after each 100,000 events:", *map(round, resident))
        assert worker.stop() == 0
    # Up to the second piece the client fills what it may fetch ahead, and allocators settle.
    assert min(resident[2:]) - max(resident[:2]) < GROWTH


def _resident_mib(pid: int) -> float:
    found = re.search(r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024
