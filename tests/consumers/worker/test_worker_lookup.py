"""A worker whose model's features come from a real Redis server: joined per block, waiting while the server is away."""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from millstream.consumers.cli.tail import as_json
from millstream.consumers.observability import metrics as m
from millstream.schemas.directory import DirectoryStore
from millstream.schemas.records import OWN_SCHEMAS_FOLDER
from millstream.topics.records import ReadRecord
from tests.broker.clients import wait_until
from tests.consumers.processes import Worker
from tests.consumers.python_service import send
from tests.consumers.service import value_of
from tests.feature_store.scene import customer_service, store_section

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.servers.redis_server import RedisServer
    from tests.broker.choice import Broker
    from tests.consumers.service import Service

COUNT = 200


def orders(redis_server: RedisServer, more: float = 0) -> None:
    """Give the customer of each event 1000 times its number, and `more`."""
    redis_server.put({f"customer:e{n}": {"orders": 1000 * n + more, "at": time.time() - 100} for n in range(COUNT)})


def outputs(service: Service) -> dict[str, Any]:
    """The output of each event; none may be there twice."""
    rows = [json.loads(value_of(message)) for message in service.predictions()]
    found = {row["event_id"]: row["outputs"]["y"] for row in rows}
    assert len(found) == len(rows)
    return found


def wait_for_results(service: Service, worker: Worker, count: int) -> None:
    """Wait until this worker has written so many results, and all events are committed."""

    def written() -> bool:
        found = worker.metrics()
        return found.get(m.PREDICTIONS.name, 0) + found.get(m.DEAD_LETTERS.name, 0) >= count

    worker.wait_for(written, 60, f"done with {count} events")
    service.wait_committed()


def lookups(worker: Worker, outcome: str) -> float:
    return worker.metrics().get(f"{m.FEATURE_LOOKUPS.name}{{lookup=customer,outcome={outcome}}}", 0)


def waits(worker: Worker) -> float:
    return worker.metrics().get(f"{m.RETRIES.name}{{what=features}}", 0)


def test_each_event_gets_its_own_features(tmp_path: Path, kafka: Broker, redis_server: RedisServer) -> None:
    orders(redis_server)
    store = store_section(redis_server, {"updated": "at"})
    service = customer_service(tmp_path, kafka, redis_server, store=store)
    for partition in range(4):
        send(service, range(partition, COUNT + 4, 4), partition=partition)
    with Worker(service.file) as worker:
        wait_for_results(service, worker, COUNT + 4)
        found = worker.metrics()
        assert lookups(worker, "found") == COUNT
        assert lookups(worker, "missing") == 4
        assert found[f"{m.FEATURE_AGE.name}_count{{lookup=customer}}"] == COUNT
        assert 100 <= found[f"{m.FEATURE_AGE.name}_sum{{lookup=customer}}"] / COUNT < 1000
        assert found[f"{m.STAGE_SECONDS.name}_count{{stage=lookup}}"] > 0
        assert worker.stop() == 0
    expected = {f"e{n}": 1001.0 * n if n < COUNT else n - 1000.0 for n in range(COUNT + 4)}
    assert outputs(service) == expected
    assert not service.dead_letters()


@pytest.mark.parametrize("form", ["avro", "json"])
def test_prediction_has_the_age_of_its_features_by_option(
    tmp_path: Path, kafka: Broker, redis_server: RedisServer, form: str
) -> None:
    orders(redis_server)
    redis_server.client().hdel("customer:e1", "at")
    store = store_section(redis_server, {"updated": "at", "include_age": True})
    output = {"format": form, "include": ["x"]}
    service = customer_service(tmp_path, kafka, redis_server, store=store, output=output)
    send(service, [*range(4), COUNT])
    with Worker(service.file, "--until-idle") as worker:
        assert worker.wait() == 0, worker.log
    folder = DirectoryStore(OWN_SCHEMAS_FOLDER)
    rows = [
        as_json(ReadRecord("t", 0, 0, -1, None, value_of(one), ()), folder)["value"] for one in service.predictions()
    ]
    ages = {row["event_id"]: row["event"]["[customer] age"] for row in rows}
    assert {event for event, age in ages.items() if age is None} == {"e1", f"e{COUNT}"}
    assert all(100 <= age < 1000 for age in ages.values() if age is not None)
    assert {row["event"]["x"] for row in rows} == {0.0, 1.0, 2.0, 3.0, COUNT}


def test_bad_entries_are_dead_letters_and_others_are_predicted(
    tmp_path: Path, kafka: Broker, redis_server: RedisServer
) -> None:
    orders(redis_server)
    redis_server.put({"customer:e1": {"orders": "many"}, "customer:e3": {"orders": "9" * 2_000_000}})
    client = redis_server.client()
    client.delete("customer:e2")
    client.set("customer:e2", "no hash")
    service = customer_service(tmp_path, kafka, redis_server)
    send(service, range(6))
    with Worker(service.file) as worker:
        wait_for_results(service, worker, 6)
        assert lookups(worker, "invalid") == 3
    assert outputs(service) == {f"e{n}": 1001.0 * n for n in (0, 4, 5)}
    letters = {json.loads(letter.value or b"")["id"]: letter for letter in service.dead_letters()}
    assert {letter.reason for letter in letters.values()} == {"unfit"}
    assert (
        "field `orders`: expected text with a number, such as 33.5 (as in JSON: no leading zeros, no plus sign, and not "
        "too large for a double), found 'many'" in letters["e1"].error
    )
    assert "the entry 'customer:e2' isn't a hash in Redis" in letters["e2"].error
    assert "has 2,000,000 bytes, more than the limit of 1,048,576" in letters["e3"].error


@pytest.mark.parametrize("fault", ["killed", "frozen"])
def test_events_wait_while_the_store_is_away(
    tmp_path: Path, kafka: Broker, redis_server: RedisServer, fault: str
) -> None:
    orders(redis_server)
    store = store_section(redis_server, timeout="500ms")
    service = customer_service(tmp_path, kafka, redis_server, store=store)
    send(service, range(10))
    with Worker(service.file) as worker:
        wait_for_results(service, worker, 10)
        if fault == "killed":
            with redis_server.client() as client:
                client.save()  # else the worker could ask between the start and `orders`, and find no customers
            redis_server.kill()
        else:
            redis_server.freeze()
        send(service, range(10, 20))
        worker.wait_for(lambda: waits(worker) >= 2, 60, "asking again")
        status, said = worker.get("/ready")
        assert status == 503
        assert f"the feature store at {redis_server.url} doesn't answer" in said
        assert worker.get("/live")[0] == 200
        assert len(outputs(service)) == 10
        if fault == "killed":
            redis_server.start()
        else:
            redis_server.thaw()
        orders(redis_server, more=0.5)
        wait_for_results(service, worker, 20)
        worker.wait_for(lambda: worker.get("/ready")[0] == 200, 30, "ready again")
        assert "features: works again" in worker.log
        assert worker.stop() == 0
    found = outputs(service)
    assert {f"e{n}" for n in range(20)} == set(found)
    assert all(value % 1001 in (0.0, 0.5) for value in found.values())
    assert not service.dead_letters()


def test_worker_that_starts_while_the_store_is_away_waits_for_it(
    tmp_path: Path, kafka: Broker, redis_server: RedisServer
) -> None:
    redis_server.kill()
    service = customer_service(tmp_path, kafka, redis_server)
    send(service, range(10))
    with Worker(service.file) as worker:
        worker.wait_for(lambda: waits(worker) >= 1, 60, "waiting")
        redis_server.start()
        orders(redis_server)
        wait_for_results(service, worker, 10)
    assert len(outputs(service)) == 10


def test_worker_stops_while_the_store_is_away_and_the_next_one_goes_on(
    tmp_path: Path, kafka: Broker, redis_server: RedisServer
) -> None:
    redis_server.kill()
    service = customer_service(tmp_path, kafka, redis_server, limits={"drain_timeout": "1s"})
    send(service, range(10))
    with Worker(service.file) as worker:
        worker.wait_for(lambda: waits(worker) >= 1, 60, "waiting")
        assert worker.stop(signal.SIGTERM) == 1
    assert not any(service.committed().values())
    redis_server.start()
    orders(redis_server)
    with Worker(service.file) as worker:
        wait_for_results(service, worker, 10)
    assert outputs(service) == {f"e{n}": 1001.0 * n for n in range(10)}


def test_features_are_missing_while_the_store_is_away_by_option(
    tmp_path: Path, kafka: Broker, redis_server: RedisServer
) -> None:
    orders(redis_server)
    store = store_section(redis_server, on_outage="missing", timeout="500ms")
    service = customer_service(tmp_path, kafka, redis_server, store=store)
    send(service, range(10))
    with Worker(service.file) as worker:
        wait_for_results(service, worker, 10)
        redis_server.kill()
        send(service, range(10, 20))
        wait_for_results(service, worker, 20)
        assert worker.get("/ready")[0] == 200
        assert lookups(worker, "unavailable") == 10
        assert "features count as missing until it does" in worker.log
        redis_server.start()
        orders(redis_server)
        sent = iter(range(20, COUNT))

        def found_again() -> bool:
            send(service, [next(sent)])
            return lookups(worker, "found") > 10

        wait_until(found_again, 60, "features to be found again")
        assert "the feature store answers again" in worker.log
        assert worker.stop() == 0
    found = outputs(service)
    assert [found[f"e{n}"] for n in range(20)] == [1001.0 * n if n < 10 else n - 1000.0 for n in range(20)]
