"""A worker whose model is on a server follows a new version, which asks the server for something else."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.consumers.llm_service import llm_service, send
from tests.consumers.processes import Worker
from tests.consumers.service import value_of
from tests.consumers.serving.versions import name_alias
from tests.inference.executors.openai.server import Asked, OpenAIServer

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker

pytest.importorskip("jinja2", reason="needs the extra `openai`")
pytestmark = pytest.mark.broker
EVENTS = 300


def write_version(models: Path, number: int, url: str, **server: Any) -> None:
    """A version whose prompt begins with its number. The server repeats the prompt's beginning."""
    document = yaml.safe_load((models / "1" / "config.yaml").read_text(encoding="utf-8"))
    document["request"] = {"prompt": f"{number}: {{{{ text }}}}"}
    document["server"] |= {"urls": [url], **server}
    part = models / f"part-{number}"
    part.mkdir()
    (part / "config.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    shutil.rmtree(models / str(number), ignore_errors=True)
    part.rename(models / str(number))


@pytest.mark.parametrize(
    "limits", [pytest.param({}, marks=pytest.mark.full), {"concurrency": 4}], ids=["same limits", "other limits"]
)
def test_requests_in_flight_are_answered_by_the_version_that_sent_them(
    kafka: Broker, tmp_path: Path, limits: dict[str, int]
) -> None:
    with OpenAIServer() as server, OpenAIServer() as other:

        def repeat(of: OpenAIServer) -> Any:
            async def act(asked: Asked) -> Any:
                return await of.answer([asked.text.split(":")[0]], pause=0.05)(asked)

            return act

        server.always, other.always = repeat(server), repeat(other)
        model = {"name": "llm", "version": "champion", "poll_interval": "200ms"}
        service = llm_service(tmp_path, kafka, server.url, server={"concurrency": 8}, model=model)
        models = tmp_path / "models" / "llm"
        write_version(models, 1, server.url)
        write_version(models, 2, other.url, **limits)
        name_alias(models, champion=1)
        with Worker(service.file) as worker:
            worker.wait_ready()
            send(service, ["hi"] * EVENTS)
            service.wait_written(EVENTS // 4)
            for version in (2, 1):  # forwards and backwards, with requests in flight
                name_alias(models, champion=version)
                shown = f"millstream_serving_model{{model=llm,version={version}}}"
                worker.wait_for(lambda name=shown: worker.metrics().get(name) == 1, 30, f"serving version {version}")  # type: ignore[misc]
            service.wait_written(EVENTS)
            send(service, ["hi"] * 20)
            service.wait_written(EVENTS + 20)
            assert worker.get("/ready")[0] == 200
            assert worker.stop() == 0
        rows = [json.loads(value_of(message)) for message in service.predictions()]
    assert len(rows) == EVENTS + 20
    assert [row["outputs"]["text"] for row in rows] == [str(row["version"]) for row in rows]
    assert {row["version"] for row in rows} == {1, 2}
    assert "Traceback" not in worker.log
    assert worker.log.count(" is unloaded") == 2


def test_version_whose_server_is_away_leaves_the_old_one_and_is_tried_again(kafka: Broker, tmp_path: Path) -> None:
    with OpenAIServer() as server:
        server.always = server.answer(["yes"])
        model = {"name": "llm", "version": "latest", "poll_interval": "200ms"}
        service = llm_service(tmp_path, kafka, server.url, model=model)
        models = tmp_path / "models" / "llm"
        with Worker(service.file) as worker:
            worker.wait_ready()
            with OpenAIServer() as other:
                away = other.url
            write_version(models, 2, away)

            def failed() -> bool:
                return worker.metrics().get("millstream_model_reloads_total{result=unavailable}", 0) >= 1

            worker.wait_for(failed, 60, "without the server of version 2")
            send(service, ["hi"] * 20)
            service.wait_written(20)
            assert worker.get("/ready")[0] == 200
            write_version(models, 2, server.url)
            shown = "millstream_serving_model{model=llm,version=2}"
            worker.wait_for(lambda: worker.metrics().get(shown) == 1, 60, "serving version 2")
            assert worker.stop() == 0
        rows = [json.loads(value_of(message)) for message in service.predictions()]
    assert [row["version"] for row in rows] == [1] * 20
