"""The checks that Millstream ships for every executor, on its own ones and on the one of docs/executors.md."""

from __future__ import annotations

import json
import re
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from benchmarks.servers.triton_server import Triton, write_model
from millstream.consumers.cli import main as cli
from millstream.inference.errors import ModelConfigError, ModelRejected
from millstream.inference.executors.blocking import BlockingExecutor
from millstream.inference.executors.choice import open_executor
from millstream.inference.executors.contract import check_executor
from millstream.inference.repository import ModelVersion, load_version
from tests.broker.choice import Broker
from tests.consumers.service import write_service
from tests.inference.doubling import DOUBLING
from tests.inference.executors import remote_models
from tests.inference.executors.remote_models import (
    PAGE,
    TRITON_BODY,
    TRITON_DOUBLING,
    example_config,
    example_installed,
    json_server,
    missing_for_triton,
    write_remote,
)
from tests.inference.executors.test_contract import DOUBLES, kinds
from tests.inference.models import looking_up
from tests.inference.python_models import predicting

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from millstream.inference.executors.interface import ModelExecutor

INPUTS = np.arange(10, dtype=np.float32).reshape(5, 2)
NOWHERE = Broker("127.0.0.1:1", durable=False, kind="mock")
BAD = np.array([[1, remote_models.POISON]], np.float32)


@pytest.mark.parametrize("write", kinds(DOUBLES))
def test_executors_of_models_in_the_worker(tmp_path: Path, write: Any) -> None:
    executor = open_executor(write(tmp_path), trust=True, device="cpu", max_events=8)
    executor.warm_up()
    check_executor(executor, {"x": INPUTS}, {"y": 2 * INPUTS})
    executor.close()


def test_executor_whose_model_rejects_an_event(tmp_path: Path) -> None:
    executor = open_executor(looking_up(tmp_path), device="cpu", max_events=8)
    executor.warm_up()
    places = np.array([[1], [0], [2]])
    expected = {"value": np.array([[20], [10], [30]], np.float32)}
    check_executor(executor, {"x": places}, expected, bad={"x": np.array([[7]])})


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Triton]:
    if (missing := missing_for_triton()) is not None:
        pytest.skip(missing)
    models = tmp_path_factory.mktemp("triton")
    write_model(models, "m", TRITON_DOUBLING, TRITON_BODY)
    with Triton(models) as server:
        yield server.start()


@pytest.mark.process
@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_kserve(tmp_path: Path, triton: Triton, protocol: str) -> None:
    executor = open_executor(write_remote(tmp_path, f"{{urls: [{getattr(triton, protocol)}]}}"), max_events=200)
    executor.warm_up()
    check_executor(executor, {"x": INPUTS}, {"y": 2 * INPUTS}, bad={"x": BAD})
    executor.close()


@pytest.mark.process
def test_executor_of_another_package_as_the_page_shows_it(tmp_path: Path) -> None:
    with example_installed(tmp_path / "site"), json_server() as url:
        folder = tmp_path / "models" / "m" / "1"
        folder.mkdir(parents=True)
        config = example_config("json").replace("http://scores:8080/score", url)
        (folder / "config.yaml").write_text(config, encoding="utf-8")
        executor = open_executor(load_version(tmp_path / "models", "m"), max_events=8)
        assert isinstance(executor, BlockingExecutor)
        assert executor.executor.limits.requests_per_minute == 600
        executor.warm_up()
        check_executor(executor, {"x": INPUTS}, {"y": 2 * INPUTS}, bad={"x": BAD})
        executor.close()


def write_matrix(folder: Path) -> None:
    """Write the model version of docs/executors.md that doubles two numbers, into this folder."""
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(example_config("matrix"), encoding="utf-8")
    np.save(folder / "weights.npy", 2 * np.eye(2, dtype=np.float32))


def test_blocking_executor_of_another_package_as_the_page_shows_it(tmp_path: Path) -> None:
    write_matrix(tmp_path / "models" / "m" / "1")
    with example_installed(tmp_path / "site"):
        executor = open_executor(load_version(tmp_path / "models", "m"), max_events=8)
        executor.warm_up()
        check_executor(executor, {"x": INPUTS}, {"y": 2 * INPUTS}, bad={"x": np.array([[1, np.nan]], np.float32)})
        executor.close()


FIELDS = '{"id": "e", "a": 1, "b": 2}'
ARRAY = '{"id": "e", "f": [1, 2]}'
SCHEMA = {
    "type": "record",
    "name": "Event",
    "fields": [{"name": "id", "type": "string"}, {"name": "f", "type": {"type": "array", "items": "float"}}],
}


@pytest.mark.process
@pytest.mark.parametrize(("executor", "mapping", "event"), [
    ("json", None, FIELDS),
    ("matrix", None, FIELDS),
    ("matrix", "JSON without a schema", ARRAY),
    ("matrix", "Avro, or JSON with `input.schema`", ARRAY),
])  # fmt: skip
def test_mappings_of_the_page_take_events(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], executor: str, mapping: str | None, event: str
) -> None:
    with example_installed(tmp_path / "site"), json_server() as url:
        (tmp_path / "schemas").mkdir()
        (tmp_path / "schemas" / "1-event.avsc").write_text(json.dumps(SCHEMA), encoding="utf-8")
        has_schema = mapping is not None and "input.schema" in mapping
        service = write_service(
            tmp_path,
            NOWHERE,
            input={"format": "json", "event_id": "id", **({"schema": "event"} if has_schema else {})},
            model={"name": "m"},
            output={"format": "json"},
            with_topics=False,
        )
        folder = tmp_path / "models" / "m" / "1"
        write_matrix(folder)
        config = example_config(executor).replace("http://scores:8080/score", url)
        if mapping is not None:
            (own,) = re.findall(rf"\| {mapping} \| `(.+)` \|", PAGE.read_text(encoding="utf-8"))
            config = re.sub(r"inputs: .*", f"inputs: [{own}]", config)
        (folder / "config.yaml").write_text(config, encoding="utf-8")
        (tmp_path / "events.jsonl").write_text(f"{event}\n", encoding="utf-8")
        assert cli.run(["predict", str(service.file), str(tmp_path / "events.jsonl"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["outputs"]["y"] == [2.0, 4.0]


def test_page_lists_what_an_executor_gets() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("<!-- model version -->\n")[2].partition("<!-- end -->")[0]
    listed = dict(re.findall(r"^\| `(\w+)` \| *`?(.*?)`? *\|", table, re.MULTILINE))
    defaults = {
        each.name: "" if each.default is MISSING else repr(each.default)
        for each in fields(ModelVersion)
        if each.default_factory is MISSING
    }
    assert listed == {**defaults, "runtime": "no options"}


def write_config(repository: Path, text: str) -> Path:
    folder = repository / "m" / "1"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(text + DOUBLING, encoding="utf-8")
    return folder


def test_unknown_executor_is_refused_with_those_that_are_installed(tmp_path: Path) -> None:
    write_config(tmp_path / "models", "executor: jsonn\n")
    with example_installed(tmp_path / "site"), pytest.raises(ModelConfigError) as refused:
        load_version(tmp_path / "models", "m")
    said = str(refused.value)
    assert (
        ":1: executor: expected onnx, torch, python, kserve, openai, mlflow, json or matrix, found 'jsonn'. Did you mean `json`?"
        in said
    )


def installed_as(site: Path, name: str, module: str) -> None:
    """A package whose executor of this name is `open` in a module with this text."""
    (site / "other_package.py").write_text(module, encoding="utf-8")
    info = site / "other_package-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-package\nVersion: 1\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[millstream.executors]\n{name} = other_package:open\n", encoding="utf-8")


def test_own_names_cannot_be_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed_as(tmp_path, "python", "def open(model, max_events):\n    raise AssertionError\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    executor = open_executor(predicting(tmp_path / "models", "return {'y': inputs['x']}"), device="cpu")
    executor.warm_up()


@pytest.mark.parametrize(
    "module", ["import missing_module", "def open(model, max_events):\n    raise KeyError('token')\n"]
)
def test_executor_that_cannot_be_opened_is_a_message_and_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    installed_as(tmp_path, "other", module)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "other_package", raising=False)
    write_config(tmp_path / "models", "executor: other\n")
    with pytest.raises(
        ModelConfigError, match=r"executor other \(other_package:open, of another package\) can't be opened"
    ):
        open_executor(load_version(tmp_path / "models", "m"))


def test_blocking_executor_of_another_package_runs_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = """
class Negating:
    device, batch_sizes, max_events = "cpu", (1,), 8
    def warm_up(self): pass
    def run(self, inputs): return {"y": -inputs["x"]}
    def close(self): pass
def open(model, max_events): return Negating()
"""
    installed_as(tmp_path, "negating", module)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "other_package", raising=False)
    write_config(tmp_path / "models", "executor: negating\n")
    executor = open_executor(load_version(tmp_path / "models", "m"))
    assert not isinstance(executor, BlockingExecutor)
    check_executor(executor, {"x": INPUTS}, {"y": -INPUTS})


class Wrong:
    """An executor that breaks the contract in one way."""

    device = "cpu"
    batch_sizes: tuple[int, ...] = (1,)

    def __init__(self, how: str) -> None:
        self.how = how
        self.max_events = 0 if how == "takes no events" else 8
        self.kept = np.zeros((8, 2), np.float32)

    def warm_up(self) -> None: ...

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        x = inputs["x"]
        if self.how == "writes into inputs" and x.flags.writeable:
            x += 1
        if self.how == "backwards":
            x = x[::-1]
        if self.how == "another name":
            return {"z": 2 * x}
        if self.how == "reuses its outputs":
            self.kept[: len(x)] = 2 * x
            return {"y": self.kept[: len(x)]}
        if BAD[0, 1] in x and self.how == "raises something else":
            raise KeyError("bad")
        if BAD[0, 1] in x and self.how != "rejects nothing":
            raise ModelRejected("bad")
        return {"y": 2 * x}

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("how", "error", "said"),
    [
        ("takes no events", AssertionError, "max_events"),
        ("backwards", AssertionError, "2 events: expected"),
        ("another name", AssertionError, r"expected the outputs \['y'\], found \['z'\]"),
        ("reuses its outputs", AssertionError, "after the next run"),
        ("rejects nothing", AssertionError, "expected ModelRejected"),
        ("raises something else", KeyError, "bad"),
    ],
)
def test_checks_find_what_is_wrong(how: str, error: type[Exception], said: str) -> None:
    executor: ModelExecutor = Wrong(how)
    with pytest.raises(error, match=said):
        check_executor(executor, {"x": INPUTS}, {"y": 2 * INPUTS}, bad={"x": BAD})


def test_checks_pass_an_executor_that_keeps_the_contract() -> None:
    check_executor(Wrong("in no way"), {"x": INPUTS}, {"y": 2 * INPUTS}, bad={"x": BAD})
