"""Commands and shadows with a model on a real Triton: they wait for each result."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from millstream.consumers.cli import main as cli
from tests.broker.clients import read_all
from tests.consumers.processes import Worker
from tests.consumers.python_service import CONFIG, answered, send
from tests.consumers.remote_service import POISON, negating_triton, remote_service
from tests.consumers.service import value_of
from tests.inference.executors.remote_models import missing_for_triton

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.servers.triton_server import Triton
    from tests.broker.choice import Broker

pytestmark = pytest.mark.durable


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Triton]:
    if (missing := missing_for_triton()) is not None:
        pytest.skip(missing)
    with negating_triton(tmp_path_factory.mktemp("triton")) as server:
        yield server.start()


def test_check_and_predict(kafka: Broker, tmp_path: Path, triton: Triton, capsys: pytest.CaptureFixture[str]) -> None:
    service = remote_service(tmp_path, kafka, f"{{urls: [{triton.grpc}]}}")
    assert cli.run(["check", str(service.file)]) == 0
    assert "runs on a server with 1 event" in capsys.readouterr().out
    file = tmp_path / "events.jsonl"
    file.write_text("".join(json.dumps({"id": f"e{x}", "x": x}) + "\n" for x in (1, POISON, 3)), encoding="utf-8")
    assert cli.run(["predict", str(service.file), str(file), "--json"]) == 1  # one event is rejected
    found: list[dict[str, Any]] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row.get("outputs") for row in found] == [{"y": -1.0}, None, {"y": -3.0}]
    assert found[1]["reason"] == "model_rejected"


@pytest.mark.parametrize("option", ["instances", "concurrent_batches"])
def test_copies_of_the_executor_are_refused(
    kafka: Broker, tmp_path: Path, triton: Triton, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    model = {"name": "number", option: 2}
    service = remote_service(tmp_path, kafka, f"{{urls: [{triton.grpc}]}}", model=model)
    assert cli.run(["check", str(service.file)]) == 1
    assert f"model.{option}: expected 1 for the executor kserve, found 2" in capsys.readouterr().err


def test_shadow_on_a_server(kafka: Broker, tmp_path: Path, triton: Triton, capsys: pytest.CaptureFixture[str]) -> None:
    topic = f"{tmp_path.name}-comparisons"
    service = remote_service(
        tmp_path,
        kafka,
        f"{{urls: [{triton.grpc}], requests_per_minute: 60000}}",
        model={"name": "number", "version": 1},
        shadows=[{"name": "same", "version": 2, "sample_rate": 1.0}],
        comparison={"topic": topic},
    )
    version = tmp_path / "models" / "number" / "2"
    version.mkdir()
    # The server's models have no versions here, as with MLServer: so both folders name the same one.
    server = f"{{urls: [{triton.http}], version: ''}}"
    (version / "config.yaml").write_text(f"executor: kserve\nserver: {server}\n{CONFIG}", encoding="utf-8")
    assert cli.run(["topics", "create", str(service.file)]) == 0
    assert cli.run(["check", str(service.file)]) == 0
    assert "quota     shadow same sends its requests beside the quota of the primary" in capsys.readouterr().out
    send(service, range(20, 120))
    with Worker(service.file, "--until-idle") as worker:
        assert worker.wait() == 0
    assert len(answered(service)) == 100
    assert len(list(map(value_of, read_all(service.bootstrap, topic)))) == 100
