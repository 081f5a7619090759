"""The executor kserve over HTTP, on small servers in this process."""

from __future__ import annotations

import asyncio
import json
from http.server import BaseHTTPRequestHandler
from threading import Barrier
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest

from millstream.consumers.cli import main as cli
from millstream.inference.errors import ExecutorUnavailable, ModelRejected
from millstream.inference.executors.blocking import BlockingExecutor
from millstream.inference.executors.choice import open_executor
from millstream.topics.local.ports import free_ports
from tests.broker.choice import Broker
from tests.consumers.remote_service import remote_service
from tests.inference.doubling import DOUBLING
from tests.inference.executors.remote_models import missing_for_kserve, serving, write_remote

if TYPE_CHECKING:
    from pathlib import Path

if (missing := missing_for_kserve()) is not None:
    pytest.skip(missing, allow_module_level=True)

from millstream.inference.executors.kserve.http import HttpEndpoint

NOWHERE = Broker("127.0.0.1:1", durable=False, kind="mock")
AT_ONCE = 8
MOST_EVENTS = 4  # more don't fit into the server's memory


class _Unrelated(BaseHTTPRequestHandler):
    """Answers everything with JSON that has nothing to do with the protocol."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"status": "ok"}')

    def log_message(self, *_: Any) -> None: ...


class _JsonOnly(BaseHTTPRequestHandler):
    """Takes JSON only, as MLServer does."""

    protocol_version = "HTTP/1.1"
    together = Barrier(AT_ONCE)  # binary requests are refused once so many have come
    refusal = 422  # the status for binary requests
    about: ClassVar[dict[str, Any]] = {"name": "json"}  # what GET /v2 answers
    binary: ClassVar[list[int]] = []  # statuses of the binary requests

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if "Inference-Header-Content-Length" in self.headers:
            self.together.wait(10)
            self.binary.append(self.refusal)
            self._answer(self.refusal, {"detail": "not JSON"})
            return
        x = json.loads(body)["inputs"][0]
        if x["shape"][0] > MOST_EVENTS:
            self._answer(500, {"error": "CUDA out of memory"})
            return
        y = {"name": "y", "datatype": "FP32", "shape": x["shape"], "data": [2 * value for value in x["data"]]}
        self._answer(200, {"model_name": "m", "outputs": [y]})

    def do_GET(self) -> None:
        if self.path.endswith("/ready"):
            self._answer(200, {})
        elif self.path == "/v2":
            self._answer(200, self.about)
        elif self.path.endswith("/config"):
            self._answer(404, {"error": "no such path"})
        else:
            self._answer(200, {"name": "m", "inputs": [], "outputs": []})

    def _answer(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


class _Scheduling(_JsonOnly):
    """Takes time limits, as Triton does."""

    about: ClassVar[dict[str, Any]] = {"name": "triton", "extensions": ["schedule_policy"]}
    limits: ClassVar[list[Any]] = []  # the parameter `timeout` of each request

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        request = json.loads(body)
        self.limits.append(request.get("parameters", {}).get("timeout"))
        y = {"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [2, 2]}
        self._answer(200, {"model_name": "m", "outputs": [y]})


class _NoVersions(_JsonOnly):
    """Knows no paths with a version."""

    def do_GET(self) -> None:
        if "/versions/" in self.path:
            self._answer(404, {"error": "no such path"})
        else:
            super().do_GET()


class _RefusesAll(_JsonOnly):
    """Refuses each inference request."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(400, {"error": "can't read this"})


def test_all_requests_that_a_server_without_binary_tensors_refuses_at_once_are_sent_again_as_json() -> None:
    """A server that joins later gets its first requests at the same time."""

    async def run(url: str) -> list[Any]:
        endpoint = HttpEndpoint(url, {})
        numbers = [np.full((1, 2), at, np.float32) for at in range(AT_ONCE)]
        try:
            return list(await asyncio.gather(*(endpoint.infer("m", "", {"x": each}, ["y"], 30.0) for each in numbers)))
        finally:
            await endpoint.close()

    with serving(_JsonOnly) as url:
        answers = asyncio.run(run(url))
    assert [answer.outputs["y"].tolist() for answer in answers] == [[[2.0 * at, 2.0 * at]] for at in range(AT_ONCE)]


def test_worker_starts_if_the_largest_batch_does_not_fit_into_the_servers_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_JsonOnly, "together", Barrier(1))
    with serving(_JsonOnly) as url:
        options = f"{{urls: ['{url}'], version: ''}}\nbatch_sizes: [1, 8, 16]"
        executor = open_executor(write_remote(tmp_path, options), max_events=16)
        executor.warm_up()
        executor.close()
    assert [record.message for record in caplog.records if "8 events at once do not fit" in record.message]


@pytest.mark.parametrize("status", [400, 415, 422, 500])
def test_server_that_refuses_the_first_binary_tensors_gets_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(_JsonOnly, "together", Barrier(1))
    monkeypatch.setattr(_JsonOnly, "refusal", status)
    monkeypatch.setattr(_JsonOnly, "binary", [])
    with serving(_JsonOnly) as url:
        executor = open_executor(write_remote(tmp_path, f"{{urls: ['{url}'], version: ''}}"), max_events=16)
        executor.warm_up()
        answer = executor.run({"x": np.ones((1, 2), np.float32)})
        executor.close()
    assert answer["y"].tolist() == [[2.0, 2.0]]
    assert _JsonOnly.binary == [status]  # remembered


def test_server_without_the_extension_gets_no_binary_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_JsonOnly, "about", {"name": "json", "extensions": ["statistics"]})
    monkeypatch.setattr(_JsonOnly, "binary", [])
    with serving(_JsonOnly) as url:
        executor = open_executor(write_remote(tmp_path, f"{{urls: ['{url}'], version: ''}}"), max_events=16)
        executor.warm_up()
        executor.close()
    assert _JsonOnly.binary == []


@pytest.mark.parametrize(("extensions", "limit"), [(["schedule_policy"], 1_500_000), (["statistics"], None)])
def test_server_that_takes_time_limits_gets_the_time_that_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extensions: list[str], limit: int | None
) -> None:
    monkeypatch.setattr(_Scheduling, "about", {"name": "triton", "extensions": extensions})
    monkeypatch.setattr(_Scheduling, "limits", [])
    with serving(_Scheduling) as url:
        executor = open_executor(write_remote(tmp_path, f"{{urls: ['{url}'], version: ''}}"), max_events=16)
        assert isinstance(executor, BlockingExecutor)
        executor.warm_up()
        executor.thread.wait_for(executor.executor.run({"x": np.ones((1, 2), np.float32)}, 1.5), 10)
        executor.close()
    assert _Scheduling.limits[-1] == limit


def test_refusal_of_both_forms_names_binary_tensors(tmp_path: Path) -> None:
    with serving(_RefusesAll) as url:
        executor = open_executor(write_remote(tmp_path, f"{{urls: ['{url}'], version: ''}}"), max_events=16)
        executor.warm_up()
        with pytest.raises(ModelRejected, match="after binary tensors were sent and refused with HTTP 400"):
            executor.run({"x": np.ones((1, 2), np.float32)})
        executor.close()


def test_check_fails_if_the_server_answers_nothing_in_the_warm_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(_RefusesAll) as url:
        config = DOUBLING.replace("field: f", "field: 'f[]'")
        server = f"{{urls: ['{url}'], version: '', model: m}}"
        service = remote_service(tmp_path, NOWHERE, server, config=config, with_topics=False)
        assert cli.run(["check", str(service.file), "--offline"]) == 3
    said = capsys.readouterr()
    assert "expected an answer to a blank event in the warm-up, found a refusal" in said.err
    assert "would start" not in said.out


def test_server_without_versions_is_named_as_such(tmp_path: Path) -> None:
    with serving(_NoVersions) as url:
        executor = open_executor(write_remote(tmp_path, f"{{urls: ['{url}']}}"), max_events=16)
        with pytest.raises(ExecutorUnavailable, match="write `version: ''` under `server`"):
            executor.warm_up()
        executor.close()


def test_failed_connection_is_told_in_plain_words(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    executor = open_executor(write_remote(tmp_path, f"{{urls: ['{url}']}}"), max_events=16)
    with pytest.raises(ExecutorUnavailable, match=f"^{url}: can't connect: Connection refused$"):
        executor.warm_up()
    executor.close()


def test_answer_that_cannot_be_read_is_an_outage_that_says_so(tmp_path: Path) -> None:
    with serving(_Unrelated) as url:
        executor = open_executor(write_remote(tmp_path, f"{{urls: ['{url}'], version: ''}}"), max_events=16)
        with pytest.raises(ExecutorUnavailable, match="expected an answer of the Open Inference Prot"):
            executor.warm_up()
        executor.close()
