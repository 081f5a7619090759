"""Exactly once, as read-committed readers see it: whatever happens, each event has one result, in its key's order."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter, defaultdict
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from benchmarks.load import Load, vector_events
from tests.broker.clients import wait_until
from tests.consumers.feeder import Feeder
from tests.consumers.processes import Worker
from tests.consumers.service import Service, id_of, vector_service

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker

pytestmark = pytest.mark.durable

RATE = 3000  # events a second
# `make faults` asks for more.
KILLS = int(os.environ.get("MILLSTREAM_KILLS", "6"))


def exactly_once(tmp_path: Path, kafka: Broker) -> Service:
    return vector_service(tmp_path, kafka, delivery="exactly_once")


def load_for(seconds: int) -> Load:
    return vector_events(RATE * seconds, seed=11)


def assert_one_result_each(service: Service, sent: int) -> None:
    """Neither lost nor doubled, and each key's results in the order of its events."""
    counts: Counter[str] = Counter()
    by_key: defaultdict[bytes | None, list[str]] = defaultdict(list)
    for message in service.predictions():
        counts[id_of(message)] += 1
        by_key[message.key()].append(id_of(message))
    expected = [f"event-{number:010d}" for number in range(sent)]
    lost = [one for one in expected if one not in counts]
    doubled = [one for one, count in counts.items() if count > 1]
    assert (lost[:5], doubled[:5], len(counts)) == ([], [], sent)
    assert all(ids == sorted(ids) for ids in by_key.values())


def finish(service: Service, *workers: Worker) -> None:
    service.wait_committed(timeout=90)
    for worker in workers:
        assert worker.stop() == 0, worker.log


def test_killed_workers_lose_and_double_nothing(kafka: Broker, tmp_path: Path) -> None:
    """SIGKILL again and again, at random moments: in a batch, in a transaction, in its commit."""
    service, load, rng = exactly_once(tmp_path, kafka), load_for(KILLS * 3 + 30), random.Random(3)
    with ExitStack() as started:
        workers = [started.enter_context(Worker(service.file, "--slot", f"w{number}")) for number in range(2)]
        for worker in workers:
            worker.wait_ready()
        with Feeder(kafka.bootstrap, service.inputs[0], load, rate=RATE) as feeder:
            for kill in range(KILLS):
                feeder.wait_for_more(rng.randrange(500, 3000))
                workers[kill % 2].stop(signal.SIGKILL)
                workers[kill % 2] = started.enter_context(Worker(service.file, "--slot", f"w{kill % 2}"))
                workers[kill % 2].wait_ready()
            sent = feeder.stop()
        finish(service, *workers)
    assert_one_result_each(service, sent)


def test_rolling_restart_loses_and_doubles_nothing(kafka: Broker, tmp_path: Path) -> None:
    service, load = exactly_once(tmp_path, kafka), load_for(40)
    with ExitStack() as started:
        workers = [started.enter_context(Worker(service.file, "--slot", f"w{number}")) for number in range(2)]
        for worker in workers:
            worker.wait_ready()
        with Feeder(kafka.bootstrap, service.inputs[0], load, rate=RATE) as feeder:
            for number in range(2):
                feeder.wait_for_more(2000)
                assert workers[number].stop() == 0, workers[number].log
                workers[number] = started.enter_context(Worker(service.file, "--slot", f"w{number}"))
                workers[number].wait_ready()
            feeder.wait_for_more(2000)
            sent = feeder.stop()
        finish(service, *workers)
    assert_one_result_each(service, sent)


def test_worker_that_was_stopped_and_woken_writes_nothing_twice(kafka: Broker, tmp_path: Path) -> None:
    """SIGSTOP until its partitions have moved, then SIGCONT: what it held is not its any more."""
    service, load = exactly_once(tmp_path, kafka), load_for(60)
    with Worker(service.file, "--slot", "zombie") as zombie, Worker(service.file, "--slot", "other") as other:
        zombie.wait_ready()
        other.wait_ready()
        wait_until(lambda: assigned(zombie) == 2 and assigned(other) == 2, 30, "the workers to share the partitions")
        with Feeder(kafka.bootstrap, service.inputs[0], load, rate=RATE) as feeder:
            feeder.wait_for_more(3000)
            os.kill(zombie.pid, signal.SIGSTOP)
            wait_until(lambda: assigned(other) == 4, 60, "the other worker to have all partitions")
            feeder.wait_for_more(3000)
            os.kill(zombie.pid, signal.SIGCONT)
            feeder.wait_for_more(6000)
            sent = feeder.stop()
        service.wait_committed(timeout=90)
        other.stop()
        zombie.stop()
    assert_one_result_each(service, sent)


def test_workers_that_come_and_go_lose_and_double_nothing(kafka: Broker, tmp_path: Path) -> None:
    """1, then 4, then 2, then 3 workers under load."""
    service, load = exactly_once(tmp_path, kafka), load_for(90)
    with ExitStack() as started:
        workers = [started.enter_context(Worker(service.file)).wait_ready()]
        with Feeder(kafka.bootstrap, service.inputs[0], load, rate=RATE) as feeder:
            for size in (4, 2, 3):
                feeder.wait_for_more(2000)
                while len(workers) > size:
                    assert workers.pop().stop() == 0
                new = [started.enter_context(Worker(service.file)) for _ in range(size - len(workers))]
                workers += [worker.wait_ready() for worker in new]
            feeder.wait_for_more(2000)
            sent = feeder.stop()
        finish(service, *workers)
    assert_one_result_each(service, sent)


def assigned(worker: Worker) -> int:
    return int(worker.metrics().get("millstream_assigned_partitions", 0))
