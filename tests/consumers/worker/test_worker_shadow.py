"""Shadows beside the primary and by themselves: what is compared, and that the primary does not notice."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer

from millstream.consumers.observability import metrics as m
from millstream.consumers.shadow.sampling import sampled
from millstream.schemas.comparisons import ComparisonDecoder, Comparisons
from millstream.schemas.directory import DirectoryStore
from millstream.schemas.records import COMPARISON, OWN_SCHEMAS_FOLDER
from millstream.schemas.rows import decode_row
from tests.broker.clients import read_all, wait_until
from tests.consumers.processes import Worker
from tests.consumers.python_service import answered, python_service, send
from tests.consumers.service import make_topics, value_of
from tests.feature_store.scene import store_section

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.servers.redis_server import RedisServer
    from tests.broker.choice import Broker
    from tests.consumers.service import Service

NEGATE = 'return {"y": -inputs["x"]}'


def shadowed(
    folder: Path, kafka: Broker, body: str, *, shadow: dict[str, Any] | None = None, **sections: Any
) -> Service:
    """A primary that negates, and a shadow, version 2, with this body."""
    shadows = [{"version": 2, **(shadow or {})}]
    service = python_service(folder, kafka, NEGATE, shadows=shadows, **sections)
    make_topics(kafka, (f"{service.group}-comparisons", f"{service.group}-evaluations"))
    first, second = folder / "models" / "number" / "1", folder / "models" / "number" / "2"
    second.mkdir()
    (second / "config.yaml").write_text((first / "config.yaml").read_text())
    (second / "model.py").write_text((first / "model.py").read_text().replace(NEGATE, body.replace("\n", "\n        ")))
    file = service.file.read_text()
    service.file.write_text(file.replace("  name: number\n", "  name: number\n  version: 1\n"))
    return service


def comparisons(service: Service) -> Comparisons:
    values = [value_of(message) for message in read_all(service.bootstrap, f"{service.group}-comparisons")]
    found, bad = ComparisonDecoder(DirectoryStore(OWN_SCHEMAS_FOLDER)).decode(values)
    assert bad == {}
    return found


@pytest.mark.parametrize("delivery", ["at_least_once", pytest.param("exactly_once", marks=pytest.mark.durable)])
def test_every_event_is_compared_once_where_the_worker_has_time(kafka: Broker, tmp_path: Path, delivery: str) -> None:
    service = shadowed(tmp_path, kafka, 'return {"y": 2 * inputs["x"]}', delivery=delivery)
    with Worker(service.file) as worker:
        worker.wait_ready()
        for start in range(0, 200, 50):
            send(service, range(start, start + 50))
            service.wait_written(start + 50)
        shed = f"{m.SHADOW_SKIPPED.name}{{reason=shed,shadow=shadow}}"  # where the machine stands still for a second
        worker.wait_for(
            lambda: worker.metrics().get(m.COMPARISONS.name, 0) + worker.metrics().get(shed, 0) >= 200, 60, "done"
        )
        left_out = worker.metrics().get(shed, 0)
        assert worker.stop() == 0
    found = comparisons(service)
    ids = {f"e{number}" for number in range(200)}
    assert Counter(answered(service)) == Counter(ids)
    assert len(found.ids) == len(set(found.ids)) == 200 - left_out
    assert ids.issuperset(found.ids)
    by_id = dict(zip(found.ids, zip(found.primary, found.shadow, strict=True), strict=True))
    assert all(primary["y"] * -2 == (shadow or {}).get("y") for primary, shadow in by_id.values())
    (pair,) = found.pairs
    assert (pair.primary.version, pair.shadow.version, pair.shadow.name) == (1, 2, "shadow")
    assert (found.primary_ms > 0).all()
    assert (found.shadow_ms > 0).all()
    assert service.dead_letters() == []


def test_shadow_gets_features_that_the_primary_does_not_need(
    kafka: Broker, tmp_path: Path, redis_server: RedisServer
) -> None:
    redis_server.put({f"customer:e{n}": {"orders": 1000 * n} for n in range(20)})
    service = shadowed(tmp_path, kafka, 'return {"y": inputs["x"]}', feature_store=store_section(redis_server))
    config = tmp_path / "models" / "number" / "2" / "config.yaml"
    config.write_text(config.read_text().replace("fields: [x]", "fields: [{from: customer, field: orders}]"))
    with Worker(service.file) as worker:
        worker.wait_ready()
        send(service, range(20))
        worker.wait_for(lambda: worker.metrics().get(m.COMPARISONS.name, 0) >= 20, 60, "done comparing")
        assert worker.stop() == 0
    found = comparisons(service)
    assert {event: (answer or {}).get("y") for event, answer in zip(found.ids, found.shadow, strict=True)} == {
        f"e{n}": 1000.0 * n for n in range(20)
    }


@pytest.mark.durable
def test_shadow_that_fails_costs_comparisons_their_answer_and_nothing_else(kafka: Broker, tmp_path: Path) -> None:
    body = 'if (inputs["x"] == 7).any():\n    raise ValueError("seven")\nreturn {"y": inputs["x"]}'
    service = shadowed(tmp_path, kafka, body)
    with Worker(service.file) as worker:
        worker.wait_ready()
        send(service, range(20))
        worker.wait_for(lambda: worker.metrics().get(m.COMPARISONS.name, 0) >= 20, 60, "done comparing")
        assert worker.stop() == 0
    found = comparisons(service)
    assert [event for event, answer in zip(found.ids, found.shadow, strict=True) if answer is None] == ["e7"]
    assert len(answered(service)) == 20
    assert service.dead_letters() == []


def fragile_service(folder: Path, kafka: Broker, **shadow: Any) -> Service:
    """Only the shadow reads `fragile`, a number. Of 20 events, e3 has true there, e5 a text, e7 nothing. Its model rejects e9."""
    body = 'if (inputs["x"][:, 0] == 9).any():\n    raise ValueError("nine")\nreturn {"y": inputs["x"].sum(axis=1)}'
    service = shadowed(folder, kafka, body, shadow=shadow, input={"format": "json", "event_id": "id"})
    config = folder / "models" / "number" / "2" / "config.yaml"
    config.write_text(
        config.read_text().replace("fields: [x], dtype: float64, shape: [1]", "fields: [x, fragile], dtype: float64")
    )
    wrong: dict[int, dict[str, Any]] = {3: {"fragile": True}, 5: {"fragile": "no"}, 7: {}}
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(20):
        event = {"id": f"e{number}", "x": number} | wrong.get(number, {"fragile": 0.5})
        producer.produce(service.inputs[0], json.dumps(event).encode(), partition=0)
    assert producer.flush(30) == 0
    return service


def check_fragile(service: Service) -> None:
    """Check that each event has a comparison, and those of the four on which the shadow fails its error."""
    found = comparisons(service)
    assert dict(zip(found.ids, found.shadow, strict=True)) == {
        f"e{number}": None if number in (3, 5, 7, 9) else {"y": number + 0.5} for number in range(20)
    }
    shown = [
        decode_row(value_of(message), COMPARISON.definition)
        for message in read_all(service.bootstrap, f"{service.group}-comparisons")
    ]
    errors = {row["event_id"]: row["shadow"]["error"] for row in shown if row["shadow"]["error"] is not None}
    assert "nine" in errors.pop("e9")
    assert errors == {
        "e3": "fragile: expected a number that fits into a double, found true",
        "e5": "fragile: expected a number that fits into a double, found text 'no'",
        "e7": "field `fragile` is absent or null, but tensor `x` needs a value",
    }


def test_wrong_value_in_a_field_that_only_the_shadow_reads_fails_only_the_shadow(kafka: Broker, tmp_path: Path) -> None:
    service = fragile_service(tmp_path, kafka)
    with Worker(service.file, "--until-idle") as worker:
        assert worker.wait() == 0
    assert "20 predicted, 20 compared by shadows, 4 comparisons with an error of the shadow\n" in worker.log
    assert len(answered(service)) == 20
    assert service.dead_letters() == []
    check_fragile(service)


@pytest.mark.full
@pytest.mark.durable
def test_dedicated_shadow_writes_a_comparison_of_each_event_on_which_it_fails(kafka: Broker, tmp_path: Path) -> None:
    service = fragile_service(tmp_path, kafka, dedicated=True)
    with Worker(service.file, "--role", "shadow", "--until-idle") as worker:
        assert worker.wait() == 0
    assert "20 compared by shadows, 4 comparisons with an error of the shadow\n" in worker.log
    check_fragile(service)
    assert service.dead_letters() == []
    with Worker(service.file, "--until-idle") as primary:
        assert primary.wait() == 0
    assert len(answered(service)) == 20
    assert service.dead_letters() == []


@pytest.mark.durable
def test_slow_shadow_is_left_out_and_the_primary_does_not_wait(kafka: Broker, tmp_path: Path) -> None:
    body = 'while not (FOLDER / "go").exists():\n    time.sleep(0.01)\nreturn {"y": inputs["x"]}'
    service = shadowed(tmp_path, kafka, body, batch={"max_events": 16})
    with Worker(service.file) as worker:
        worker.wait_ready()
        for start in range(0, 1000, 100):
            send(service, range(start, start + 100))
            service.wait_written(start + 100)  # while the shadow is in its first batch, and stays there
        service.wait_committed()
        shed = f"{m.SHADOW_SKIPPED.name}{{reason=shed,shadow=shadow}}"
        worker.wait_for(lambda: worker.metrics().get(shed, 0) > 0, 30, "leaving events out")
        assert worker.metrics().get(m.COMPARISONS.name, 0) == 0
        (tmp_path / "go").touch()
        worker.wait_for(
            lambda: worker.metrics().get(m.COMPARISONS.name, 0) + worker.metrics()[shed] == 1000, 60, "done comparing"
        )
        assert worker.stop() == 0
    assert Counter(answered(service)) == Counter(f"e{number}" for number in range(1000))
    found = Counter(comparisons(service).ids)
    assert set(found.values()) == {1}
    assert len(found) < 1000


@pytest.mark.durable
def test_worker_that_ends_when_idle_lets_its_shadow_finish(kafka: Broker, tmp_path: Path) -> None:
    """Together, its batches take longer than an ending worker waits for it."""
    body = 'time.sleep(1)\nreturn {"y": inputs["x"]}'
    service = shadowed(tmp_path, kafka, body, shadow={"max_load": 1.0}, batch={"max_events": 16})
    send(service, range(100))
    with Worker(service.file, "--until-idle") as worker:
        assert worker.wait() == 0
        assert "totals: 100 events read, 100 predicted, 100 compared by shadows\n" in worker.log
    assert set(comparisons(service).ids) == {f"e{number}" for number in range(100)}


@pytest.mark.durable
def test_dedicated_shadow_compares_its_sample_exactly_once_over_restarts(kafka: Broker, tmp_path: Path) -> None:
    shadow = {"sample_rate": 0.5, "dedicated": True, "name": "candidate"}
    service = shadowed(
        tmp_path,
        kafka,
        NEGATE,
        shadow=shadow,
        delivery="exactly_once",
        batch={"max_events": 8},
        commit_every="20ms",
        output={"format": "json", "include": ["x"]},
    )
    send(service, range(400))
    for _ in range(2):
        with Worker(service.file, "--role", "shadow", "--until-idle") as worker:
            assert worker.wait() == 0
    ids = [f"e{number}" for number in range(400)]
    expected = [one for one, taken in zip(ids, sampled([None] * 400, ids, 0.5, "candidate"), strict=True) if taken]
    found = comparisons(service)
    assert Counter(found.ids) == Counter(expected)
    assert service.predictions() == []
    with Worker(service.file, "--until-idle") as primary:  # it is in a group of its own, and runs no dedicated shadow
        assert primary.wait() == 0
    assert Counter(answered(service)) == Counter(ids)
    included = [json.loads(value_of(message))["event"] for message in service.predictions()]
    assert sorted(event["x"] for event in included) == list(range(400))
    assert len(comparisons(service).ids) == len(expected)


@pytest.mark.full
@pytest.mark.durable
@pytest.mark.parametrize("dedicated", [False, True])
def test_shadow_whose_version_an_alias_made_live_stops_no_worker(
    kafka: Broker, tmp_path: Path, *, dedicated: bool
) -> None:
    service = shadowed(tmp_path, kafka, NEGATE, shadow={"dedicated": dedicated})
    service.file.write_text(service.file.read_text().replace("  version: 1\n", "  version: champion\n"))
    (tmp_path / "models" / "number" / "aliases.yaml").write_text("champion: 2\n")
    send(service, range(20))
    for options in [(), ("--role", "shadow")] if dedicated else [()]:
        with Worker(service.file, *options, "--until-idle") as worker:
            assert worker.wait() == 0
            left_out = worker.log.count("the shadow `shadow` is left out, because its version is live now")
            assert left_out == (bool(options) or not dedicated)
    assert set(answered(service)) == {f"e{number}" for number in range(20)}
    assert comparisons(service).ids == []


@pytest.mark.durable
def test_role_without_a_dedicated_shadow_is_refused(kafka: Broker, tmp_path: Path) -> None:
    service = shadowed(tmp_path, kafka, NEGATE)
    with Worker(service.file, "--role", "shadow") as worker:
        assert worker.wait() != 0
    assert "expected one with `dedicated: true`" in worker.log
    assert "Traceback" not in worker.log


@pytest.mark.durable
def test_dedicated_shadow_is_refused_in_a_group_that_something_else_uses(kafka: Broker, tmp_path: Path) -> None:
    service = shadowed(tmp_path, kafka, NEGATE, shadow={"dedicated": True})
    group, other = f"{service.group}-shadow", f"{service.group}-comparisons"
    stranger = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group, "client.id": "stranger"})
    stranger.subscribe([other])
    try:
        wait_until(lambda: stranger.poll(0.1) is None and bool(stranger.assignment()), 60, "its assignment")
        with Worker(service.file, "--role", "shadow", "--log-level", "error") as worker:
            assert worker.wait() == 1
            [message] = worker.log.splitlines()
    finally:
        stranger.close()
    assert f"group {group} is in use by something else: its member stranger" in message
    assert f"reads {other}" in message
