"""`millstream predict` and `millstream check` with features from a real Redis server."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from millstream.consumers.cli import main as cli
from millstream.topics import admin
from tests.broker.choice import Broker
from tests.feature_store.scene import CONFIG, customer_service, store_section

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.servers.redis_server import RedisServer

NOWHERE = Broker("127.0.0.1:1", durable=False, kind="mock")
EVENTS = [{"id": "a", "x": 1.0}, {"id": "b", "x": 2.0}, {"id": "none", "x": 3.0}]


def pipeline(folder: Path, server: RedisServer, config: str = CONFIG, **sections: Any) -> str:
    service = customer_service(folder, NOWHERE, server, config=config, with_topics=False, **sections)
    return str(service.file)


def predicted(
    capsys: pytest.CaptureFixture[str], folder: Path, file: str, events: list[dict[str, Any]], code: int = 0
) -> list[dict[str, Any]]:
    lines = folder / "events.jsonl"
    lines.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    assert cli.run(["predict", file, str(lines), "--json"]) == code
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("schema", ["number-event", None], ids=["schema", "no schema"])
def test_fields_of_event_and_store_fill_one_tensor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], redis_server: RedisServer, schema: str | None
) -> None:
    redis_server.put({"customer:a": {"orders": 10}, "customer:b": {"orders": "20.5"}})
    events = {"format": "json", "event_id": "id"} | ({} if schema is None else {"schema": schema})
    file = pipeline(tmp_path, redis_server, input=events)
    found = predicted(capsys, tmp_path, file, EVENTS)
    assert [one["features"] for one in found] == [
        {"x": {"x": 1.0, "[customer].orders": 10.0}},
        {"x": {"x": 2.0, "[customer].orders": 20.5}},
        {"x": {"x": 3.0, "[customer].orders": -1000.0}},
    ]
    assert [one["outputs"]["y"] for one in found] == [11.0, 22.5, -997.0]


def test_options_of_a_field_mean_the_same_as_for_an_event(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], redis_server: RedisServer
) -> None:
    config = """\
inputs:
  - tensor: x
    dtype: float64
    fields:
      - {from: customer, field: orders, type: text}
      - {from: customer, field: tier, vocabulary: [bronze, gold], unknown: 9, missing: -1}
      - {from: customer, field: since, time: iso8601, as: month}
      - {from: customer, field: vip, type: boolean, missing: 0}
  - {tensor: vector, from: customer, field: "vector[]", shape: [3], pad: 0, dtype: float32}
outputs: [{tensor: y}]
"""
    fields: dict[str, Any] = {"orders": "7", "since": "2026-05-01", "vector": "[1, 2]"}
    rich = fields | {"tier": "gold", "vip": "true"}
    redis_server.put({"customer:a": rich, "customer:b": fields, "customer:none": rich | {"orders": "many"}})
    as_json: dict[str, Any] = fields | {"vector": [1, 2]}
    documents = {"a": as_json | {"tier": "gold", "vip": True}, "b": as_json, "none": as_json | {"orders": "many"}}
    redis_server.client().mset({f"json:{key}": json.dumps(value) for key, value in documents.items()})
    results = []
    for name, lookup in (("hash", {}), ("json", {"value": "json", "key": "json:{id}"})):
        (tmp_path / name).mkdir()
        file = pipeline(tmp_path / name, redis_server, config, store=store_section(redis_server, lookup))
        results.append(predicted(capsys, tmp_path / name, file, EVENTS, code=1))
    for found in results:
        numbers = [list(one["features"]["x"].values()) for one in found[:2]]
        assert numbers == [[7.0, 1.0, 5.0, 1.0], [7.0, -1.0, 5.0, 0.0]]
        assert found[0]["features"]["vector"] == [1.0, 2.0, 0.0]
        assert found[2]["reason"] == "unfit"
        assert "field `[customer].orders` is 'many', but tensor `x` needs text with a number" in found[2]["error"]


def test_several_look_ups_join_the_same_events(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], redis_server: RedisServer
) -> None:
    config = CONFIG.replace("}]", "}, {from: shop, field: rank}, {from: customer, field: age, missing: 0}]", 1)
    redis_server.put(
        {"customer:a": {"orders": 1}, "customer:b": {"orders": 2, "age": 7}, "customer:none": {"orders": "x"}}
    )
    redis_server.client().mset({"shop:a-a": '{"rank": 5}', "shop:b-b": '{"rank": 6}', "shop:none-none": "{}"})
    shop = {"name": "shop", "key": "shop:{id}-{id}", "value": "json"}
    lookups = [*store_section(redis_server)["lookups"], shop]
    file = pipeline(tmp_path, redis_server, config, store=store_section(redis_server, lookups=lookups))
    found = predicted(capsys, tmp_path, file, [*EVENTS, {"id": "a-b", "x": 0.0}], code=1)
    assert [list(one["features"]["x"].values()) for one in found[:2]] == [[1.0, 1.0, 5.0, 0.0], [2.0, 2.0, 6.0, 7.0]]
    assert found[2]["error"].startswith("look-up `customer`: the entry 'customer:none' can't be read: field `orders`")
    assert found[3]["error"].startswith(
        "look-up `shop`: field `id` is 'a-b', but in the key of a look-up it can't contain '-'"
    )


def test_mapping_of_the_pipeline_file_moves_a_field_to_the_store_and_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], redis_server: RedisServer
) -> None:
    redis_server.put({"customer:a": {"amount": 5}})
    inputs = {"x": [{"field": "amount", "from": "customer"}, "x"]}
    file = pipeline(tmp_path, redis_server, model={"name": "number", "inputs": inputs})
    (found,) = predicted(capsys, tmp_path, file, EVENTS[:1])
    assert found["features"] == {"x": {"[customer].amount": 5.0, "x": 1.0}}


def test_fallback_of_a_field_is_in_the_same_look_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], redis_server: RedisServer
) -> None:
    redis_server.put({"customer:a": {"rank": 1, "level": 9}, "customer:b": {"level": 2}, "customer:none": {"other": 1}})
    inputs = {"x": ["x", {"field": "rank", "from": "customer", "fallback": "level", "missing": -7}]}
    file = pipeline(tmp_path, redis_server, model={"name": "number", "inputs": inputs})
    found = predicted(capsys, tmp_path, file, EVENTS)
    assert [one["features"]["x"]["[customer].rank or [customer].level"] for one in found] == [1.0, 2.0, -7.0]


@pytest.mark.full
def test_store_that_is_away_is_one_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], redis_server: RedisServer
) -> None:
    file = pipeline(tmp_path, redis_server)
    redis_server.kill()
    (tmp_path / "events.jsonl").write_text('{"id": "a", "x": 1}')
    assert cli.run(["predict", file, str(tmp_path / "events.jsonl"), "--timeout", "0.2"]) == 1
    said = capsys.readouterr().err
    assert f"the feature store at {redis_server.url} doesn't answer: " in said
    assert "--timeout is 0.2 s. Run the command again when it answers." in said
    assert cli.run(["check", file, "--offline"]) == 0
    assert "look-up   customer: not checked (--offline)" in capsys.readouterr().out
    assert cli.run(["check", file]) == 1
    told = capsys.readouterr()
    assert f"the feature store at {redis_server.url} doesn't answer: " in told.err
    assert "look-up" not in told.out


def test_predict_waits_for_the_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], redis_server: RedisServer
) -> None:
    redis_server.put({"customer:a": {"orders": 1}})
    redis_server.client().save()
    file = pipeline(tmp_path, redis_server)
    redis_server.kill()
    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(predicted, capsys, tmp_path, file, EVENTS[:1])
        time.sleep(1)
        redis_server.start()
        assert found.result()[0]["outputs"]["y"] == 2.0


def test_store_that_is_away_counts_as_missing_by_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], redis_server: RedisServer
) -> None:
    file = pipeline(tmp_path, redis_server, store=store_section(redis_server, on_outage="missing"))
    redis_server.kill()
    found = predicted(capsys, tmp_path, file, EVENTS)
    assert [one["outputs"]["y"] for one in found] == [-999.0, -998.0, -997.0]


def test_entry_older_than_max_age_counts_as_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], redis_server: RedisServer
) -> None:
    now = time.time()
    redis_server.put({"customer:a": {"orders": 1, "at": now}, "customer:b": {"orders": 1, "at": now - 7200}})
    lookup = {"updated": "at", "max_age": "1h"}
    file = pipeline(tmp_path, redis_server, store=store_section(redis_server, lookup))
    found = predicted(capsys, tmp_path, file, EVENTS[:2])
    assert [one["outputs"]["y"] for one in found] == [2.0, -998.0]


def test_check_reads_as_for_an_event(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "ANSWER_TIMEOUT", 0.1)  # of the broker, which is away
    cli.run(["check", pipeline(tmp_path, redis_server)])
    assert "look-up   customer: keys 'customer:' and the like can be read" in capsys.readouterr().out


MISSING = ", missing: -1000"


@pytest.mark.parametrize(
    ("config", "store", "says"),
    [
        (
            CONFIG.replace("from: customer", "from: shop"),
            {},
            "tensor `x` takes field `orders` from the look-up `shop`, which the pipeline file lacks (feature_store.lookups: "
            "customer). Add it there",
        ),
        (CONFIG.replace("from: customer", "from: a b"), {}, "inputs[0].fields[1].from: expected the name of a look-up"),
        (CONFIG.replace("orders", '"a..b"'), {}, "which is no path: path `a..b`, character 3: expected a name"),
        (CONFIG.replace("orders", '"a.b"'), {}, "expected the name of a hash's field, found the path `a.b`"),
        (
            CONFIG.replace(MISSING, ""),
            {"on_outage": "missing"},
            "expected a value for `orders` of look-up `customer` while the store is away (feature_store.on_outage: missing)",
        ),
        (CONFIG, {"lookups": [{"name": "customer", "key": "a:{idd}"}]}, "lookups[0].key: expected a field of schema"),
        (
            CONFIG,
            {"lookups": [{"name": "customer", "key": "a:{x}"}]},
            "expected a text, a whole number or a boolean in the",
        ),
        (CONFIG, {"lookups": [{"name": "customer", "key": "a:{id"}]}, "lookups[0].key: expected a closing brace"),
        (
            CONFIG,
            {"lookups": [{"name": "customer", "key": "{id}", "updated": "orders", "updated_format": "iso8601"}]},
            "expected field `orders` to be a time in iso8601 (`updated`), but a model reads it as float64",
        ),
    ],
)
def test_each_mistake_is_one_message_with_its_place(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    redis_server: RedisServer,
    config: str,
    store: dict[str, Any],
    says: str,
) -> None:
    file = pipeline(tmp_path, redis_server, config, store=store_section(redis_server, **store))
    assert cli.run(["check", file, "--offline"]) == 1
    said = capsys.readouterr().err
    assert says in said
    assert sum(says in line for line in said.splitlines()) == 1


def test_mistakes_in_look_ups_and_elsewhere_are_told_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], redis_server: RedisServer
) -> None:
    config = CONFIG.replace("from: customer", "from: shop").replace("[x,", "[y,")
    assert cli.run(["check", pipeline(tmp_path, redis_server, config), "--offline"]) == 1
    said = capsys.readouterr().err
    assert "takes the event's field `y`, but schema" in said


def test_pipeline_without_a_store_says_what_to_add(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], redis_server: RedisServer
) -> None:
    file = tmp_path / "pipeline.yaml"
    pipeline(tmp_path, redis_server)
    document = yaml.safe_load(file.read_text())
    del document["feature_store"]
    file.write_text(yaml.safe_dump(document))
    assert cli.run(["check", str(file), "--offline"]) == 1
    assert "which the pipeline file lacks (feature_store.lookups: none)" in capsys.readouterr().err
