"""What the worker needs goes away and comes back: that makes lag, and nothing worse."""

from __future__ import annotations

import json
import re
import sys
import time
from collections import Counter
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.load import VECTOR_SCHEMA, VECTOR_SCHEMA_ID, vector_events
from millstream.consumers.cli import main as cli
from millstream.consumers.observability import metrics as m
from millstream.schemas.wire import HEAD_BYTES, frame
from tests.broker.choice import Broker
from tests.broker.clients import produce
from tests.broker.maven import MavenKafka, missing_for_maven
from tests.consumers.feeder import Feeder
from tests.consumers.processes import Worker
from tests.consumers.service import VECTOR_INPUT, id_of, vector_service
from tests.schemas.test_registry import Registry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.broker.clients import Row
    from tests.consumers.service import Service

HELD = 600
SMALL = {"batch": {"max_events": 64}, "limits": {"in_flight_events": HELD, "drain_timeout": "1s"}}


@pytest.fixture
def registry() -> Iterator[Registry]:
    server = Registry()
    thread = Thread(target=lambda: server.serve_forever(poll_interval=0.01))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def own() -> Iterator[MavenKafka]:
    """A broker that may be stopped."""
    if (missing := missing_for_maven()) is not None:
        pytest.skip(f"stops a broker of its own, but {missing}")
    with MavenKafka() as broker:
        yield broker


@pytest.mark.full
@pytest.mark.durable
def test_broker_that_goes_and_comes_back_costs_nothing_but_time(own: MavenKafka, tmp_path: Path) -> None:
    load = vector_events(200_000, seed=23)
    service = vector_service(tmp_path, Broker(own.bootstrap, durable=True, kind="maven"))
    with Worker(service.file) as worker, Feeder(own.bootstrap, service.inputs[0], load, rate=1000) as feeder:
        worker.wait_ready()
        service.wait_written(1000)
        own.kill()
        # It stays away for as long as it takes: this is the outage's length, not a wait for something.
        for _ in range(8):
            time.sleep(0.5)
            assert worker.get("/live")[0] == 200
        own.start()
        feeder.wait_for_more(1000)
        sent = feeder.stop()
        service.wait_committed(60)
        assert worker.get("/live")[0] == 200
        assert worker.metrics()[m.KAFKA_ERRORS.name] > 0
        assert worker.stop() == 0
    assert Counter(map(id_of, service.predictions())).keys() == set(_names(0, sent))


@pytest.mark.durable
@pytest.mark.parametrize("delivery", ["at_least_once", pytest.param("exactly_once", marks=pytest.mark.full)])
def test_broker_that_is_away_is_two_lines_and_not_ready(
    own: MavenKafka, tmp_path: Path, delivery: str, full: bool
) -> None:
    service = vector_service(tmp_path, Broker(own.bootstrap, durable=True, kind="maven"), delivery=delivery)
    with Worker(service.file) as worker:
        worker.wait_ready()
        before = len(worker.log)
        own.kill()
        worker.wait_for(lambda: worker.get("/ready")[0] == 503, 30, "not ready")
        assert f"Kafka at {own.bootstrap} does not answer" in worker.get("/ready")[1]
        time.sleep(10 if full else 3)  # the outage's length: a client reports each of its attempts, several a second
        assert worker.get("/live")[0] == 200
        own.start()
        worker.wait_for(lambda: worker.get("/ready")[0] == 200, 60, "ready again")
        said = [line for line in worker.log[before:].splitlines() if " INFO " not in line and "SESSTMOUT" not in line]
        went, *minutes, came = said
        assert f"Kafka at {own.bootstrap} does not answer; waiting, nothing is lost (" in went
        assert all("still waiting" in line for line in minutes)  # one a minute: a busy machine starts the broker slowly
        assert f"Kafka at {own.bootstrap} answers again, after" in came
        assert worker.stop() == 0


@pytest.mark.full
@pytest.mark.durable
def test_exactly_once_worker_waits_through_an_outage_longer_than_its_watchdogs_allow(
    own: MavenKafka, tmp_path: Path
) -> None:
    load = vector_events(200_000, seed=23)
    broker = Broker(own.bootstrap, durable=True, kind="maven")
    service = vector_service(tmp_path, broker, delivery="exactly_once", limits={"stall_after": "3s"})
    with Worker(service.file) as worker, Feeder(own.bootstrap, service.inputs[0], load, rate=200) as feeder:
        worker.wait_ready()
        service.wait_written(1000)
        own.kill()
        worker.wait_for(lambda: worker.get("/ready")[0] == 503, 30, "not ready")
        # The outage's length: the loop may stand still for 6 s, and a call of the producer's client for 20 s.
        for _ in range(35):
            time.sleep(1)
            assert worker.get("/live")[0] == 200, worker.log
        own.start()
        feeder.wait_for_more(1000)
        sent = feeder.stop()
        service.wait_committed(90)
        assert not re.search(r"reading (0 partitions|nothing) again", worker.log)
        assert "while a broker answers" not in worker.log
        assert worker.stop() == 0
    assert Counter(map(id_of, service.predictions())) == Counter(_names(0, sent))


@pytest.mark.full
@pytest.mark.durable
def test_client_that_hangs_in_an_outage_ends_the_worker_once_the_broker_is_back(
    own: MavenKafka, tmp_path: Path
) -> None:
    broker = Broker(own.bootstrap, durable=True, kind="maven")
    service = vector_service(tmp_path, broker, limits={"stall_after": "1s"})
    hang = tmp_path / "hang"
    program = (sys.executable, "-P", str(Path(__file__).with_name("hanging_worker.py")), str(hang))
    with Worker(service.file, program=program, env={"PYTHONPATH": str(Path(__file__).parents[3])}) as worker:
        worker.wait_ready()
        own.kill()
        worker.wait_for(lambda: worker.get("/ready")[0] == 503, 30, "not ready")
        hang.touch()
        time.sleep(6)  # three times what the loop may take while a broker answers
        assert worker.running, worker.log
        own.start()
        assert worker.wait() == 1
    assert "the worker's loop has not come back for 2 s" in worker.log


@pytest.mark.full
@pytest.mark.durable
def test_worker_told_to_end_while_the_broker_is_away_ends_and_its_successor_does_the_rest(
    own: MavenKafka, tmp_path: Path
) -> None:
    load = vector_events(200_000, seed=23)
    broker = Broker(own.bootstrap, durable=True, kind="maven")
    service = vector_service(tmp_path, broker, limits={"drain_timeout": "1s"})
    with Feeder(own.bootstrap, service.inputs[0], load, rate=2000) as feeder:
        with Worker(service.file) as worker:
            worker.wait_ready()
            service.wait_written(2000)
            own.kill()
            feeder.wait_for_more(2000)
            assert worker.stop(timeout=30) == 1
            assert "Traceback" not in worker.log
        own.start()
        sent = feeder.stop()
    with Worker(service.file, "--until-idle") as successor:
        assert successor.wait() == 0
    assert service.committed() == service.input_ends()
    assert Counter(map(id_of, service.predictions())).keys() == set(_names(0, sent))


@pytest.mark.full
@pytest.mark.durable
def test_worker_that_cannot_commit_what_it_has_written_does_not_say_that_all_is_committed(
    own: MavenKafka, tmp_path: Path
) -> None:
    broker = Broker(own.bootstrap, durable=True, kind="maven")
    service = vector_service(tmp_path, broker, commit_every="30s")
    load = vector_events(1000, seed=41)
    with Worker(service.file) as worker:
        worker.wait_ready()
        with Feeder(own.bootstrap, service.inputs[0], load, rate=2000):
            service.wait_written(1000)
        own.kill()
        assert worker.stop(timeout=60) == 1
        assert "events were not finished, because no broker answers: they are not committed, and are read" in worker.log
        assert "drained" not in worker.log.splitlines()[-1]
    own.start()
    with Worker(service.file, "--until-idle") as successor:
        assert successor.wait() == 0
    assert Counter(map(id_of, service.predictions())) == Counter(_names(0, 1000)) + Counter(_names(0, 1000))


@pytest.mark.full
@pytest.mark.durable
def test_worker_whose_transaction_waits_for_the_broker_ends_when_told_to(own: MavenKafka, tmp_path: Path) -> None:
    """Its partitions are lost in the outage, while the transaction tries to commit their offsets."""
    load = vector_events(200_000, seed=37)
    broker = Broker(own.bootstrap, durable=True, kind="maven")
    service = vector_service(tmp_path, broker, delivery="exactly_once", limits={"drain_timeout": "1s"})
    with Feeder(own.bootstrap, service.inputs[0], load, rate=2000) as feeder:
        with Worker(service.file) as worker:
            worker.wait_ready()
            service.wait_written(2000)
            own.kill()
            worker.wait_for(lambda: "now 0 partitions" in worker.log, 60, "without its partitions")
            assert worker.stop(timeout=30) == 1
            assert "Traceback" not in worker.log
        own.start()
        sent = feeder.stop()
    with Worker(service.file, "--until-idle") as successor:
        assert successor.wait() == 0
    assert Counter(map(id_of, service.predictions())) == Counter(_names(0, sent))


@pytest.mark.full
@pytest.mark.durable
def test_offsets_in_an_open_transaction_are_asked_for_until_it_ends(kafka: Broker, tmp_path: Path) -> None:
    """A lost worker's: how far it came is not known yet, so nothing is read there, and the log says why."""
    service = vector_service(tmp_path, kafka)
    load = vector_events(100, seed=29)
    produce(kafka.bootstrap, service.inputs[0], zip(load.keys, load.values, strict=True))
    lost = _lost_in_a_transaction(service)
    with Worker(service.file) as worker:
        worker.wait_for(lambda: "does not tell the committed offsets of" in worker.log, 60, "saying what it waits for")
        assert worker.get("/live")[0] == 200
        lost.abort_transaction()
        service.wait_committed()
        assert worker.stop() == 0
    assert Counter(map(id_of, service.predictions())) == Counter(_names(0, 100))


def _lost_in_a_transaction(service: Service) -> Producer:
    """A producer that has sent the input's first offset into a transaction, and not committed it."""
    common = {"bootstrap.servers": service.bootstrap}
    producer = Producer({**common, "transactional.id": f"{service.inputs[0]}-lost", "transaction.timeout.ms": 120_000})
    producer.init_transactions(30)
    producer.begin_transaction()
    member = Consumer({**common, "group.id": service.group})
    producer.send_offsets_to_transaction(
        [TopicPartition(service.inputs[0], 0, 1)], member.consumer_group_metadata(), 30
    )
    member.close()
    return producer


@pytest.mark.durable
def test_registry_that_is_away_pauses_the_worker_and_loses_nothing(
    kafka: Broker, tmp_path: Path, registry: Registry
) -> None:
    service, old, new = _on_registry(tmp_path, kafka, registry)
    with Worker(service.file) as worker:
        worker.wait_ready()
        produce(kafka.bootstrap, service.inputs[0], _events(0, 100, old))
        service.wait_written(100)
        service.wait_committed()  # nothing is held any more
        registry.broken = (503, b"{}")
        # More than the worker may hold, all by a schema that it has to ask for.
        produce(kafka.bootstrap, service.inputs[0], _events(100, 5 * HELD, new))
        worker.wait_for(lambda: worker.metrics().get(m.PAUSED.name) == 4, 30, "paused")
        # That one is told at once, and this one once a second.
        worker.wait_for(lambda: worker.metrics()[m.IN_FLIGHT_EVENTS.name] > 0, 10, "holding some")
        paused = worker.metrics()
        assert paused[m.IN_FLIGHT_EVENTS.name] <= HELD
        assert paused[f"{m.RETRIES.name}{{what=schemas}}"] >= 1
        assert paused[m.ASSIGNED.name] == 4
        assert worker.get("/live")[0] == 200
        ready = worker.get("/ready")
        assert ready[0] == 503
        assert ready[1].startswith("not ready: ")
        assert "can't give schema id" in ready[1]
        registry.broken = None
        service.wait_written(5 * HELD)
        service.wait_committed()
        worker.wait_for(lambda: worker.metrics()[m.IN_FLIGHT_EVENTS.name] == 0, 10, "rid of what it held")
        after = worker.metrics()
        assert after[m.PAUSED.name] == 0
        assert f"{m.REBALANCES.name}{{kind=lost}}" not in after
        assert "HTTP Request" not in worker.log
        assert worker.stop() == 0
    assert Counter(map(id_of, service.predictions())) == Counter(_names(0, 5 * HELD))


@pytest.mark.durable
def test_worker_that_ends_during_an_outage_commits_nothing_that_it_did_not_answer(
    kafka: Broker, tmp_path: Path, registry: Registry
) -> None:
    service, old, new = _on_registry(tmp_path, kafka, registry)
    with Worker(service.file) as worker:
        worker.wait_ready()
        produce(kafka.bootstrap, service.inputs[0], _events(0, 100, old))
        service.wait_written(100)
        service.wait_committed()
        before = service.committed()
        registry.broken = (503, b"{}")
        produce(kafka.bootstrap, service.inputs[0], _events(100, 300, new))
        worker.wait_for(lambda: worker.metrics().get(m.RETRIES.name, 0) > 0, 30, "waiting for the registry")
        assert worker.stop() == 1
        assert "Traceback" not in worker.log
    assert service.committed() == before
    registry.broken = None
    with Worker(service.file, "--until-idle") as successor:
        assert successor.wait() == 0
    assert Counter(map(id_of, service.predictions())) == Counter(_names(0, 300))


def test_registry_that_is_away_at_the_start_is_told_in_one_message(
    kafka: Broker, tmp_path: Path, registry: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    service, _, _ = _on_registry(tmp_path, kafka, registry)
    registry.broken = (503, b"{}")
    assert cli.run(["check", str(service.file)]) == 1
    said = capsys.readouterr().err
    assert registry.url in said
    assert "Traceback" not in said


@pytest.mark.durable
def test_schema_that_comes_later_is_found_without_a_restart(kafka: Broker, tmp_path: Path) -> None:
    service = vector_service(tmp_path, kafka)
    newer = VECTOR_SCHEMA_ID + 1
    with Worker(service.file) as worker:
        worker.wait_ready()
        produce(kafka.bootstrap, service.inputs[0], _events(0, 10, newer))
        service.wait_written(10)
        assert {letter.reason for letter in service.dead_letters()} == {"unknown_schema"}
        (tmp_path / "schemas" / f"{newer}-vector-event.avsc").write_text(json.dumps(VECTOR_SCHEMA), encoding="utf-8")
        time.sleep(1.1)  # the folder is looked through once a second at most
        produce(kafka.bootstrap, service.inputs[0], _events(10, 30, newer))
        service.wait_written(30)
        assert worker.stop() == 0
    assert sorted(map(id_of, service.predictions())) == _names(10, 30)


def _on_registry(folder: Path, kafka: Broker, registry: Registry) -> tuple[Service, int, int]:
    """A pipeline whose schemas are in a registry, and the ids of two schemas that fit it."""
    old = registry.add("vector-event", VECTOR_SCHEMA)
    new = registry.add("vector-event-next", VECTOR_SCHEMA | {"doc": "The same, registered later."})
    service = vector_service(folder, kafka, schemas={"registry": {"url": registry.url}}, input=VECTOR_INPUT, **SMALL)
    return service, old, new


def _events(first: int, last: int, schema_id: int) -> list[Row]:
    load = vector_events(last, seed=29)
    return [(load.keys[n], frame(schema_id) + load.values[n][HEAD_BYTES:]) for n in range(first, last)]


def _names(first: int, last: int) -> list[str]:
    return [f"event-{number:010d}" for number in range(first, last)]
