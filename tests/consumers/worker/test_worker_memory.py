"""A worker's memory does not grow with the events it has seen."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import pytest

from benchmarks.load import vector_events, write_load
from millstream.consumers.observability import metrics as m
from tests.consumers.processes import Worker
from tests.consumers.python_service import answered, python_service, send
from tests.consumers.service import vector_service

if TYPE_CHECKING:
    from tests.broker.choice import Broker

BURST = 60_000  # events: more than the ceiling has room for
PIECE = 100_000
GROWTH = 8  # MiB in 100,000 events: a leak of one small object an event would be more


@pytest.mark.full
@pytest.mark.durable
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the memory of a process from /proc")
def test_memory_is_flat(kafka: Broker, tmp_path: Path) -> None:
    # Little is fetched ahead, so that what the client may hold is full after the first pieces, however fast they are read.
    service = vector_service(tmp_path, kafka, limits={"in_flight_events": 4096, "in_flight_bytes": "16MiB"})
    load = vector_events(PIECE, seed=19)
    resident = []
    with Worker(service.file) as worker:
        for number in range(1, 6):
            write_load(kafka.bootstrap, service.inputs[0], load)
            service.wait_written(number * PIECE)
            resident.append(_resident_mib(worker.pid))
        print("resident MiB after each 100,000 events:", *map(round, resident))
        assert worker.stop() == 0
    # A leak grows with every piece; an allocator that takes an arena, or the client that fills what it may fetch, does it once.
    assert median(after - before for before, after in pairwise(resident)) < GROWTH


@pytest.mark.durable
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the memory of a process from /proc")
def test_memory_stays_under_its_ceiling_while_the_executor_is_stuck_and_a_burst_comes(
    kafka: Broker, tmp_path: Path
) -> None:
    body = """
    while (FOLDER / "stuck").exists():
        time.sleep(0.01)
    return {"y": -inputs["x"]}
    """
    service = python_service(tmp_path, kafka, body, limits={"in_flight_bytes": "32MiB", "in_flight_events": 1_000_000})
    with Worker(service.file) as worker:
        worker.wait_ready()
        send(service, range(BURST // 10))
        service.wait_committed(60)
        before = _resident_mib(worker.pid)
        (tmp_path / "stuck").touch()
        send(service, range(BURST // 10, BURST))
        worker.wait_for(lambda: worker.metrics()[m.PAUSED.name] == 4, 60, "full")
        stuck = _resident_mib(worker.pid)
        (tmp_path / "stuck").unlink()
        service.wait_committed(120)
        assert worker.stop() == 0
    print(f"resident MiB: {before:.0f}, stuck {stuck:.0f}")
    assert stuck - before < 32
    assert Counter(answered(service)) == Counter(f"e{number}" for number in range(BURST))


def _resident_mib(pid: int) -> float:
    found = re.search(r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024
