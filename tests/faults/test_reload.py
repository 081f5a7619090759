"""Models change under load, while workers are killed: each event has one result, of exactly the version that it names."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.consumers.service import prediction_of
from tests.consumers.serving.versions import delete_version, name_alias, write_version
from tests.faults.named_versions import wait_answered
from tests.faults.service import assert_exactly_once, under_load

if TYPE_CHECKING:
    from tests.broker.choice import Broker
    from tests.consumers.processes import Worker
    from tests.consumers.service import Service

pytestmark = pytest.mark.durable
MODEL = {"name": "vector", "version": "champion", "poll_interval": "200ms"}
VERSIONS = (1, 2, 3)


def versions_of(service: Service) -> set[int]:
    """The versions that answered. Each prediction must name the version that its output shows."""
    rows = [prediction_of(message) for message in service.predictions()]
    wrong = [
        (row["event_id"], row["version"], row["outputs"]) for row in rows if row["outputs"] != {"score": row["version"]}
    ]
    assert wrong == [], f"{len(wrong)} of {len(rows)} name another version than the one that answered: {wrong[:3]}"
    return {row["version"] for row in rows}


def serves(worker: Worker, version: int) -> bool:
    return worker.metrics().get(f"millstream_serving_model{{model=vector,version={version}}}") == 1


def write_versions(models: Path) -> None:
    delete_version(models, 1)  # the vector model's own
    for number in VERSIONS:
        write_version(models, number)
    name_alias(models, champion=1)


def test_workers_are_killed_while_the_model_changes(kafka: Broker, tmp_path: Path, full: bool) -> None:
    chance = random.Random(11)
    with under_load(tmp_path, kafka, seed=201, model=MODEL) as (service, fleet, stream):
        models = tmp_path / "models" / "vector"
        write_versions(models)
        fleet.start("w0", "w1")
        fleet.wait_ready()
        for turn in range(30 if full else 5):
            name_alias(models, champion=chance.choice(VERSIONS))
            time.sleep(chance.uniform(0, 0.4))  # at any moment of a reload
            victim = f"w{turn % 2}"
            fleet.kill(victim)
            fleet.start(victim)
            stream.wait_for_more(chance.randrange(200, 1000))
        fleet.wait_ready()
        for version in (2, 3, 1):
            name_alias(models, champion=version)
            wait_answered(service, {"vector": version})
        assert_exactly_once(service, fleet.finish(stream))
    assert versions_of(service) == set(VERSIONS)


def test_all_workers_follow_within_the_poll_interval_without_a_rebalance(kafka: Broker, tmp_path: Path) -> None:
    with under_load(tmp_path, kafka, seed=202, model=MODEL) as (service, fleet, stream):
        models = tmp_path / "models" / "vector"
        write_versions(models)
        fleet.start("w0", "w1")
        fleet.wait_ready()
        stream.wait_for_more(2000)
        rebalances = [fleet[name].metrics()["millstream_rebalances_total"] for name in ("w0", "w1")]
        for version in (2, 1, 3):
            name_alias(models, champion=version)
            for name in ("w0", "w1"):
                worker = fleet[name]
                # `test_watch_thread.py` shows the bound with a clock. This machine may be busy with other tests.
                worker.wait_for(lambda w=worker, v=version: serves(w, v), 30, f"serving version {version}")  # type: ignore[misc]
                assert worker.get("/ready")[0] == worker.get("/live")[0] == 200
            stream.wait_for_more(1000)
        assert rebalances == [fleet[name].metrics()["millstream_rebalances_total"] for name in ("w0", "w1")]
        assert_exactly_once(service, fleet.finish(stream))
    assert versions_of(service) == set(VERSIONS)


def test_hundreds_of_reloads_leave_memory_and_threads_as_they_were(kafka: Broker, tmp_path: Path) -> None:
    """`benchmarks/reload.py` measures the latency of it."""
    model = {**MODEL, "poll_interval": "50ms"}
    with under_load(tmp_path, kafka, seed=203, rate=300, model=model) as (service, fleet, stream):
        models = tmp_path / "models" / "vector"
        write_versions(models)
        for number in VERSIONS:
            delete_version(models, number)
            write_version(models, number, weight_bytes=8 << 20)
        fleet.start("w0")
        fleet.wait_ready()
        worker = fleet["w0"]
        sizes: list[int] = []
        for turn in range(500):
            version = VERSIONS[turn % len(VERSIONS)]
            name_alias(models, champion=version)
            worker.wait_for(lambda v=version: serves(worker, v), 60, f"serving version {version}")  # type: ignore[misc]
            if turn % 100 == 99:
                sizes.append(resident(worker.pid))
        threads = len(list(Path(f"/proc/{worker.pid}/task").iterdir()))
        assert max(sizes[1:]) < 1.15 * sizes[0] + (16 << 20), f"memory grew: {sizes}"
        assert threads < 40
        assert_exactly_once(service, fleet.finish(stream))
    assert versions_of(service) == set(VERSIONS)


def resident(pid: int) -> int:
    """Bytes of memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmRSS:"))
