"""The executor kserve over HTTP, on a small server in this process that takes JSON only, as MLServer does."""

from __future__ import annotations

import asyncio
import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Barrier, Thread
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.inference.executors.remote_models import missing_for_kserve

if TYPE_CHECKING:
    from collections.abc import Iterator

if (missing := missing_for_kserve()) is not None:
    pytest.skip(missing, allow_module_level=True)

from millstream.inference.executors.kserve.http import HttpEndpoint

AT_ONCE = 8


class _JsonOnly(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    together = Barrier(AT_ONCE)  # binary requests are refused once so many have come

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if "Inference-Header-Content-Length" in self.headers:
            self.together.wait(10)
            self._answer(422, {"detail": "not JSON"})
            return
        x = json.loads(body)["inputs"][0]
        y = {"name": "y", "datatype": "FP32", "shape": x["shape"], "data": [2 * value for value in x["data"]]}
        self._answer(200, {"model_name": "m", "outputs": [y]})

    def _answer(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


@contextmanager
def json_only_server() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _JsonOnly)
    thread = Thread(target=lambda: server.serve_forever(poll_interval=0.01))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_all_requests_that_a_server_without_binary_tensors_refuses_at_once_are_sent_again_as_json() -> None:
    """A server that joins later gets its first requests at the same time."""

    async def run(url: str) -> list[Any]:
        endpoint = HttpEndpoint(url, {})
        numbers = [np.full((1, 2), at, np.float32) for at in range(AT_ONCE)]
        try:
            return await asyncio.gather(*(endpoint.infer("m", "", {"x": each}, ["y"], 30.0) for each in numbers))
        finally:
            await endpoint.close()

    with json_only_server() as url:
        answers = asyncio.run(run(url))
    assert [answer.outputs["y"].tolist() for answer in answers] == [[[2.0 * at, 2.0 * at]] for at in range(AT_ONCE)]
