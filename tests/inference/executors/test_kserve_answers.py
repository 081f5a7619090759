"""What the executor kserve makes of a server that doesn't follow the protocol, or that wants to harm the worker."""

from __future__ import annotations

import asyncio
import gzip
import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from millstream.inference.errors import ExecutorUnavailable, ModelRejected, Throttled
from tests.inference.executors.remote_models import missing_for_kserve, write_remote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

if missing_for_kserve() is not None:
    pytest.skip(str(missing_for_kserve()), allow_module_level=True)

from millstream.inference.executors.kserve import http
from millstream.inference.executors.kserve.executor import KServeExecutor

OUTPUT = {"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [2, 4]}
GOOD = {"model_name": "m", "model_version": "1", "outputs": [OUTPUT]}
BINARY = {"name": "y", "datatype": "FP32", "shape": [1, 2], "parameters": {"binary_data_size": 8}}


@dataclass
class HostileServer:
    """Gives the same response to each request."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    url: str = ""
    seen: list[Mapping[str, str]] = field(default_factory=list)
    """The headers of each request."""


@contextmanager
def hostile(status: int = 200, body: object = b"", **headers: str) -> Iterator[HostileServer]:
    """A server. `body`: bytes, or what becomes JSON."""
    made = HostileServer(status, body if isinstance(body, bytes) else json.dumps(body).encode(), headers)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            made.seen.append(dict(self.headers))
            self.send_response(made.status)
            for name, value in made.headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(made.body)))
            self.end_headers()
            self.wfile.write(made.body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        made.url = f"http://127.0.0.1:{server.server_port}"
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield made
        server.shutdown()


def answer(folder: Path, server: HostileServer) -> Any:
    """What the executor makes of the server's response."""
    executor = KServeExecutor(write_remote(folder, f"{{urls: ['{server.url}'], headers: {{X-Key: secret}}}}"))

    async def run() -> Any:
        try:
            return (await executor.run({"x": np.ones((1, 2), np.float32)}, 10.0))["y"].tolist()
        finally:
            await executor.close()

    return asyncio.run(run())


def binary(output: Mapping[str, Any], data: bytes) -> dict[str, Any]:
    """A response with a binary tensor, as arguments of `hostile`."""
    head = json.dumps(GOOD | {"outputs": [output]}).encode()
    return {"body": head + data, "Inference_Header_Content_Length": str(len(head))}


def test_good_answers(tmp_path: Path) -> None:
    with hostile(body=GOOD) as server:
        assert answer(tmp_path, server) == [[2, 4]]
    with hostile(**binary(BINARY, np.array([2, 4], np.float32).tobytes())) as server:
        assert answer(tmp_path, server) == [[2, 4]]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"model_name": "\xff"}',
        b"[" * 100_000,
        b"null",
        b"[1]",
        b'"text"',
        b'{"model_name": "m", "model_version": "1"}',
        GOOD | {"outputs": None},
        GOOD | {"outputs": [1]},
        *(GOOD | {"outputs": [OUTPUT | change]} for change in ({"shape": [1, 3]}, {"shape": "x"}, {"shape": [10**30]})),
        *(GOOD | {"outputs": [OUTPUT | {"data": data}]} for data in (["a", "b"], [[1], 2], {"a": 1}, [])),
        *(GOOD | {"outputs": [OUTPUT | {"datatype": kind}]} for kind in ("FP7", None)),
        GOOD | {"outputs": [OUTPUT | {"datatype": "INT32", "data": [10**12, 1]}]},
        *(GOOD | {"outputs": [{k: v for k, v in OUTPUT.items() if k != lacking}]} for lacking in OUTPUT),
    ],
)
def test_no_event_is_to_blame_for_an_answer_that_cannot_be_read(tmp_path: Path, body: object) -> None:
    with hostile(body=body) as server, pytest.raises(ExecutorUnavailable):
        answer(tmp_path, server)


@pytest.mark.parametrize(
    ("output", "data"),
    [
        (BINARY, b"1234"),
        (BINARY | {"parameters": {"binary_data_size": 7}}, b"1234567"),
        (BINARY | {"parameters": {"binary_data_size": "8"}}, b"12345678"),
        (BINARY | {"parameters": {"binary_data_size": 1.5}}, b"12345678"),
        (BINARY | {"datatype": "BYTES"}, b"\xff\xff\xff\x7f1234"),
    ],
)
def test_no_event_is_to_blame_for_wrong_binary_data(tmp_path: Path, output: Mapping[str, Any], data: bytes) -> None:
    with hostile(**binary(output, data)) as server, pytest.raises(ExecutorUnavailable):
        answer(tmp_path, server)


@pytest.mark.parametrize("status", [201, 204, 301, 304])
def test_no_event_is_to_blame_for_a_status_that_is_no_error(tmp_path: Path, status: int) -> None:
    with hostile(status, b"" if status in {204, 304} else GOOD) as server, pytest.raises(ExecutorUnavailable):
        answer(tmp_path, server)


def test_client_errors_are_the_events_fault(tmp_path: Path) -> None:
    with hostile(400, {"error": "bad shape"}) as server, pytest.raises(ModelRejected, match="bad shape"):
        answer(tmp_path, server)


@pytest.mark.parametrize("status", [302, 307, 308])
def test_secrets_and_events_follow_no_redirect(tmp_path: Path, status: int) -> None:
    with hostile(body=GOOD) as elsewhere, hostile(status, Location=f"{elsewhere.url}/v2") as server:
        with pytest.raises(ExecutorUnavailable, match=f"HTTP {status}"):
            answer(tmp_path, server)
        assert elsewhere.seen == []
        assert server.seen[0]["X-Key"] == "secret"


@pytest.mark.parametrize("status", [200, 500])
def test_answer_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    monkeypatch.setattr(http, "MOST_BYTES", 1 << 16)
    with (
        hostile(status, b" " * (1 << 17)) as server,
        pytest.raises(ExecutorUnavailable, match="more than 65,536 bytes"),
    ):
        answer(tmp_path, server)


def test_compressed_answer_is_not_unpacked(tmp_path: Path) -> None:
    packed = gzip.compress(json.dumps(GOOD).encode())
    with hostile(body=packed, Content_Encoding="gzip") as server:
        with pytest.raises(ExecutorUnavailable, match="not compressed"):
            answer(tmp_path, server)
        assert server.seen[0]["Accept-Encoding"] == "identity"


@pytest.mark.parametrize(("header", "seconds"), [("3", 3.0), ("nan", None), ("-1", None), ("soon", None)])
def test_server_may_say_when_it_wants_the_request_again(tmp_path: Path, header: str, seconds: float | None) -> None:
    with hostile(429, {"error": "busy"}, Retry_After=header) as server, pytest.raises(Throttled) as caught:
        answer(tmp_path, server)
    assert caught.value.retry_after == seconds
