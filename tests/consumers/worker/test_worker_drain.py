"""Workers that end: told to, under load, or because nothing is left to do."""

from __future__ import annotations

import signal
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from benchmarks.load import vector_events, write_load
from millstream.consumers.observability import metrics as m
from tests.broker.clients import read_all
from tests.consumers.processes import Worker
from tests.consumers.python_service import answered, python_service, send
from tests.consumers.service import id_of, value_of, vector_service

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker
    from tests.consumers.service import Service

# Small batches make the backlog last long enough for a worker to be told to end in the middle of it.
SLOW = {"max_events": 4, "max_wait": "1ms"}


@pytest.mark.durable
def test_told_to_end_under_load_a_worker_commits_exactly_what_it_wrote(kafka: Broker, tmp_path: Path) -> None:
    """Three workers are told in turn, a fourth finishes: nothing is lost and nothing is there twice."""
    service = vector_service(tmp_path, kafka, batch=SLOW, limits={"in_flight_events": 2000})
    load = vector_events(30_000, seed=13)
    write_load(kafka.bootstrap, service.inputs[0], load)
    ends = service.input_ends()
    told = [(signal.SIGTERM, "SIGTERM", 1000), (signal.SIGHUP, "SIGHUP", 5000), (signal.SIGINT, "Ctrl-C", 9000)]
    for how, name, at_least in told:
        with Worker(service.file) as worker:
            worker.wait_ready()  # the one before may have written as many already
            service.wait_written(at_least)
            assert worker.stop(how) == 0
            assert f"{name}: draining" in worker.log
            # The signal may come in the moment between a commit and the next poll.
            assert f"A second {name} stops it at once" in worker.log or "has no events in flight" in worker.log
            assert "all results are written and committed" in worker.log
        assert service.committed() != ends  # it ended in the middle
        assert _ids_below_committed(service) == Counter(map(id_of, service.predictions()))
    with Worker(service.file, "--until-idle") as last:
        assert last.wait() == 0
    assert service.committed() == ends
    assert Counter(map(id_of, service.predictions())) == Counter(f"event-{n:010d}" for n in range(len(load.values)))


def _ids_below_committed(service: Service) -> Counter[str]:
    committed = service.committed()
    return Counter(
        value_of(message)[6:22].decode()
        for message in read_all(service.bootstrap, service.inputs[0])
        if (message.offset() or 0) < committed.get((service.inputs[0], message.partition() or 0), 0)
    )


@pytest.mark.durable
def test_until_idle_ends_when_nothing_is_left(kafka: Broker, tmp_path: Path) -> None:
    service = vector_service(tmp_path, kafka)
    with Worker(service.file, "--until-idle") as worker:
        assert worker.wait() == 0
    assert service.predictions() == []
    write_load(kafka.bootstrap, service.inputs[0], vector_events(10_000, seed=17))
    with Worker(service.file, "--until-idle") as first, Worker(service.file, "--until-idle") as second:
        assert (first.wait(), second.wait()) == (0, 0)
    assert service.committed() == service.input_ends()
    expected = Counter(f"event-{number:010d}" for number in range(10_000))
    assert Counter(map(id_of, service.predictions())) == expected
    with Worker(service.file, "--until-idle") as worker:
        assert worker.wait() == 0
    assert Counter(map(id_of, service.predictions())) == expected


def test_live_and_ready_say_how_a_worker_is(kafka: Broker, tmp_path: Path) -> None:
    service = vector_service(tmp_path, kafka)
    with Worker(service.file) as worker:
        worker.wait_for(lambda: worker.get("/live")[0] == 200, 30, "live")
        early = worker.get("/ready")
        assert early[0] == 200 or early[1].startswith("not ready: ")
        worker.wait_ready()
        assert worker.get("/ready") == (200, "ready\n")
        assert worker.get("/nowhere")[0] == 404
        assert worker.metrics()[m.READY.name] == 1
        assert worker.stop() == 0


@pytest.mark.durable
@pytest.mark.parametrize("delivery", [pytest.param("at_least_once", marks=pytest.mark.full), "exactly_once"])
def test_told_twice_a_worker_ends_at_once_and_the_next_one_does_the_rest(
    kafka: Broker, tmp_path: Path, delivery: str
) -> None:
    body = 'while (FOLDER / "stop").exists():\n    time.sleep(0.01)\nreturn {"y": -inputs["x"]}'
    service = python_service(tmp_path, kafka, body, delivery=delivery, limits={"drain_timeout": "10m"})
    with Worker(service.file) as worker:
        worker.wait_ready()
        send(service, range(10))
        service.wait_committed()
        (tmp_path / "stop").touch()
        send(service, range(10, 30))
        worker.wait_for(lambda: worker.metrics()[m.IN_FLIGHT_EVENTS.name] == 20, 30, "in the batch that hangs")
        worker.send(signal.SIGINT)  # a second SIGTERM within half a second would count as the first one
        worker.wait_for(lambda: "finishes and commits its 20 events in flight" in worker.log, 10, "draining")
        assert worker.stop() == 1
        assert "20 events were not finished: they are not committed, and are read again" in worker.log
        assert ("may be on their topic already" in worker.log) == (delivery == "at_least_once")
        assert "totals: 30 events read, 10 predicted, 20 read again or left to other workers\n" in worker.log
    (tmp_path / "stop").unlink()
    with Worker(service.file, "--until-idle") as successor:
        assert successor.wait() == 0
    assert Counter(answered(service)) == Counter(f"e{number}" for number in range(30))


@pytest.mark.broker
def test_idle_worker_that_is_told_to_end_frees_what_its_libraries_hold(kafka: Broker, tmp_path: Path) -> None:
    """Torch's Triton, for one, prints each of its objects that isn't freed at the exit."""
    service = python_service(tmp_path, kafka, "return {'y': inputs['x'][:, 0]}")
    own = tmp_path / "models" / "number" / "1" / "model.py"
    held = """
import sys, types

class Held:
    def __init__(self):
        self.itself = self  # only the garbage collector frees it

    def __del__(self, write=os.write):
        write(2, b"freed\\n")

HELD = types.ModuleType("held")
HELD.it = Held()
sys.modules["held"] = HELD
del HELD
"""
    own.write_text(own.read_text() + held)
    with Worker(service.file) as worker:
        worker.wait_ready()
        assert worker.stop(signal.SIGINT) == 0
        assert "Ctrl-C: draining: the worker has no events in flight, and leaves its group\n" in worker.log
        assert worker.log.endswith("freed\n")
