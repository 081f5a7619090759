"""`millstream predict` and `millstream check` with features from Feast, in an environment with Feast's packages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.environments import python_of
from benchmarks.errors import LeftOutError
from benchmarks.servers import CACHE
from millstream.consumers.cli import main as cli
from tests.broker.choice import Broker
from tests.consumers.python_service import python_service

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from benchmarks.servers.redis_server import RedisServer

FEAST = Path(__file__).parents[1] / "feature_store" / "feast"
ROOT = Path(__file__).parents[2]
NOWHERE = Broker("127.0.0.1:1", durable=False, kind="mock")
pytestmark = pytest.mark.full  # Feast is installed first: 600 MB
BODY = 'return {"y": inputs["x"].sum(axis=1)}'
CONFIG = """\
inputs:
  - tensor: x
    dtype: float64
    fields:
      - x
      - {from: customer, field: orders, missing: -1000}
      - {from: customer, field: vip, missing: 0}
      - {from: customer, field: since, time: seconds, as: month, missing: 0}
  - {tensor: text, fields: [{from: customer, field: city, missing: none}], dtype: string}
  - {tensor: vector, from: customer, field: "vector[]", missing: 0, pad: 0, shape: [3], dtype: float32}
outputs: [{tensor: y}]
"""
LOOKUP = {"name": "customer", "key": {"customer_id": "id"}, "view": "customers"}


class Runner:
    """A process that runs commands with Feast's packages."""

    def __init__(self, packages: Path, log: Path) -> None:
        environ = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{packages}"}
        command = [sys.executable, "-P", "-m", "tests.feature_store.feast.runner"]
        self._log = log.open("w")
        self.process = subprocess.Popen(
            command, env=environ, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log
        )

    def run(self, *words: str | Path | None, code: int = 0) -> tuple[str, str]:
        """The standard output and error of a command; see `runner`."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps([None if word is None else str(word) for word in words]), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        assert line, f"the runner ended:\n{Path(self._log.name).read_text()}"
        found, out, said = json.loads(line)
        assert found == code, said
        assert "Traceback" not in said
        return out, said

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        self._log.close()


@pytest.fixture(scope="module")
def feast(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    try:
        python = python_of("feast", FEAST, cache=CACHE)
    except LeftOutError as error:
        pytest.skip(f"no Feast: {error}")
    (packages,) = python.parents[1].glob("lib/python*/site-packages")
    runner = Runner(packages, tmp_path_factory.mktemp("runner") / "log")
    yield runner
    runner.close()


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, feast: Runner) -> Path:
    """A repository with an online store in SQLite."""
    folder = tmp_path_factory.mktemp("shop")
    feast.run("make_shop", folder, None)
    return folder


def pipeline(folder: Path, repository: Path, config: str = CONFIG, **store: Any) -> str:
    section = {"type": "feast", "repository": str(repository), "timeout": "10s", "lookups": [LOOKUP]} | store
    events = {"format": "json", "event_id": "id"}
    service = python_service(folder, NOWHERE, BODY, input=events, feature_store=section, with_topics=False)
    (folder / "models" / "number" / "1" / "config.yaml").write_text(config, encoding="utf-8")
    return str(service.file)


def predicted(
    folder: Path, file: str, feast: Runner, events: Sequence[Mapping[str, Any]], code: int = 0
) -> list[dict[str, Any]]:
    lines = folder / "events.jsonl"
    lines.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    out, _ = feast.run("predict", file, lines, "--json", code=code)
    return [json.loads(line) for line in out.splitlines()]


def test_features_of_a_view_are_joined(tmp_path: Path, feast: Runner, shop: Path) -> None:
    events: list[dict[str, Any]] = [{"id": key, "x": 0.5} for key in (1, "2", 3, "nobody", 2**70)]
    found = predicted(tmp_path, pipeline(tmp_path, shop), feast, events, code=1)
    assert [list(one["features"]["x"].values()) for one in found[:3]] == [
        [0.5, 10.0, 1.0, 5.0],
        [0.5, 20.0, 0.0, 5.0],
        [0.5, -1000.0, 0.0, 0.0],
    ]
    assert [list(one["features"]["text"].values()) for one in found[:3]] == [["a"], ["none"], ["none"]]
    assert [one["features"]["vector"] for one in found[:3]] == [[1.0, 2.0, 0.0], [3.0, 4.0, 0.0], [0.0, 0.0, 0.0]]
    for one in found[3:]:
        assert one["reason"] == "unfit"
        assert (
            "field `id`: expected text with a whole number of 64 bits, such as 33 (as in JSON: no leading zeros"
            in one["error"]
        )
        assert "for the join key customer_id, found " in one["error"]


def test_old_features_count_as_missing(tmp_path: Path, feast: Runner, shop: Path) -> None:
    file = pipeline(tmp_path, shop, lookups=[LOOKUP | {"max_age": "1h"}])
    found = predicted(tmp_path, file, feast, [{"id": 1, "x": 0}, {"id": 2, "x": 0}])
    assert [one["features"]["x"]["[customer].orders"] for one in found] == [10.0, -1000.0]


def test_key_of_several_parts(tmp_path: Path, feast: Runner, shop: Path) -> None:
    config = (
        "inputs: [{tensor: x, dtype: float64, fields: [{from: p, field: price, missing: 0}]}]\noutputs: [{tensor: y}]\n"
    )
    lookup = {"name": "p", "key": {"product": "id", "shop": "shop"}, "view": "products"}
    file = pipeline(tmp_path, shop, config, lookups=[lookup])
    events: list[dict[str, Any]] = [{"id": 7, "shop": "s"}, {"id": 7, "shop": "t"}, {"id": 7, "shop": None}]
    found = predicted(tmp_path, file, feast, events)
    assert [one["outputs"]["y"] for one in found] == [9.5, 0.0, 0.0]


def test_key_that_feast_refuses_costs_only_its_own_event(tmp_path: Path, feast: Runner, shop: Path) -> None:
    config = (
        "inputs: [{tensor: x, dtype: float64, fields: [{from: b, field: stock, missing: 0}]}]\noutputs: [{tensor: y}]\n"
    )
    lookup = {"name": "b", "key": {"branch": "id"}, "view": "branches"}
    file = pipeline(tmp_path, shop, config, lookups=[lookup])
    events = [{"id": key} for key in (1, 2, 2**40, 3, -(2**40), 1)]
    found = predicted(tmp_path, file, feast, events, code=1)
    assert [one.get("outputs") for one in found] == [{"y": 3.0}, {"y": 0.0}, None, {"y": 0.0}, None, {"y": 3.0}]
    for one in (found[2], found[4]):
        assert one["reason"] == "unfit"
        assert "look-up `b`: Feast refuses the key (" in one["error"]


def test_check_asks_the_store(tmp_path: Path, feast: Runner, shop: Path) -> None:
    out, _ = feast.run("check", pipeline(tmp_path, shop), code=1)  # 1: no broker
    assert "look-up   customer: answers for customers:orders, customers:vip" in out


@pytest.mark.parametrize(
    ("config", "lookup", "says"),
    [
        (CONFIG, {"view": "customer"}, "found customer. Did you mean `customers`? If it is new, run `feast apply`"),
        (
            CONFIG.replace("orders", "order"),
            {},
            "found order, which a model's config.yaml names. Did you mean `orders`?",
        ),
        (
            CONFIG,
            {"key": {"customer": "id"}},
            "expected the join keys of the view customers under `key` (customer_id), found",
        ),
        (CONFIG.replace("vector[]", "vector"), {}, "write `vector[]` in config.yaml"),
        (
            CONFIG.replace("field: orders", 'field: "orders[]"'),
            {},
            "feature orders is INT64: write `orders` in config.yaml",
        ),
        (CONFIG.replace("field: city", "field: raw"), {}, "and raw is BYTES. Leave it out."),
        (
            CONFIG.replace("field: city", "field: mean"),
            {},
            "takes string from field `mean` of look-up `customer`, but the",
        ),
    ],
)
def test_each_mistake_is_one_message(
    tmp_path: Path, feast: Runner, shop: Path, config: str, lookup: dict[str, Any], says: str
) -> None:
    _, said = feast.run("check", "--offline", pipeline(tmp_path, shop, config, lookups=[LOOKUP | lookup]), code=1)
    assert says in said


def test_folder_without_a_repository_is_one_message(tmp_path: Path, feast: Runner) -> None:
    _, said = feast.run("check", "--offline", pipeline(tmp_path, tmp_path / "none"), code=1)
    assert f"expected a file feature_store.yaml in {tmp_path / 'none'}, found none" in said


def test_redis_behind_feast_that_is_away_or_frozen_is_one_message(
    tmp_path: Path, feast: Runner, redis_server: RedisServer
) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    feast.run("make_shop", folder, f"127.0.0.1:{redis_server.port}")
    file = pipeline(tmp_path, folder, timeout="2s")
    (found,) = predicted(tmp_path, file, feast, [{"id": 1, "x": 0}])
    assert found["features"]["x"]["[customer].orders"] == 10.0
    events = tmp_path / "events.jsonl"
    redis_server.freeze()
    _, said = feast.run("predict", file, events, "--timeout", "0.1", code=1)
    assert "(Feast) doesn't answer: TimeoutError: no answer within 2000 ms" in said
    redis_server.thaw()
    redis_server.kill()
    _, said = feast.run("predict", file, events, "--timeout", "0.1", code=1)
    # Feast's Redis client tries again for seconds, so this may be a timeout, too.
    assert f"the feature store of {folder} (Feast) doesn't answer: " in said


def test_without_feast_check_says_what_to_install(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if find_spec("feast") is not None:
        pytest.skip("Feast is installed")
    assert cli.run(["check", "--offline", pipeline(tmp_path, tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "a feature store of type feast needs the package feast" in said
    assert "pip install 'millstream[feast]'" in said
