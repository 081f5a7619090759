"""Models on real servers, and an executor of another package: the one of docs/executors.md."""

from __future__ import annotations

import json
import re
import sys
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.errors import LeftOutError
from benchmarks.servers import triton_server
from millstream.inference.repository import ModelVersion, load_version
from tests.inference.doubling import DOUBLING

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parents[3] / "docs" / "executors.md"
POISON = 13.0
TRITON_DOUBLING = """
max_batch_size: 64
input [{ name: "x" data_type: TYPE_FP32 dims: [2] }]
output [{ name: "y" data_type: TYPE_FP32 dims: [2] }]
dynamic_batching { max_queue_delay_microseconds: 500 }
instance_group [{ kind: KIND_CPU count: 1 }]
"""
TRITON_BODY = """
x = tensor(request, "x")
if (x == 13).any():
    return refused("poison row")
return answer(y=x * 2)
"""


def missing_for_kserve() -> str | None:
    """What this environment lacks to call a server; None: nothing."""
    if find_spec("tritonclient") is None:
        return "tritonclient is not installed: .venv/bin/pip install -e '.[kserve]'"
    return None


@cache
def missing_for_triton() -> str | None:
    """What is missing to start a Triton here; None: nothing."""
    if (missing := missing_for_kserve()) is not None:
        return missing
    try:
        triton_server.installed()
    except LeftOutError as error:
        return f"no Triton: {error}"
    return None


def write_remote(
    repository: Path, server: str, *, config: str = DOUBLING, name: str = "m", version: int = 1
) -> ModelVersion:
    """Write a config.yaml of the executor kserve with these options of `server`, a YAML mapping in one line."""
    folder = repository / name / str(version)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(f"executor: kserve\nserver: {server}\n{config}", encoding="utf-8")
    return load_version(repository, name, version)


def code_blocks(language: str) -> list[str]:
    """The code blocks of docs/executors.md in this language."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def install_example(site: Path) -> None:
    """Install the executors of docs/executors.md as a package into this folder, as pip would."""
    package = site / "my_package"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    for name, head in (("matrix_executor", "class MatrixExecutor"), ("json_executor", "class JsonExecutor")):
        (code,) = (block for block in code_blocks("python") if head in block)
        (package / f"{name}.py").write_text(code, encoding="utf-8")
    found = re.fullmatch(r'\[project\.entry-points\."(.+)"\]\n(.+)', code_blocks("toml")[0], re.DOTALL)
    assert found is not None
    info = site / "my_package-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[{found[1]}]\n{found[2].replace(chr(34), '')}\n", encoding="utf-8")


def example_config(executor: str) -> str:
    """The config.yaml of docs/executors.md for this executor."""
    (config,) = (block for block in code_blocks("yaml") if f"executor: {executor}\n" in block)
    return config


@contextmanager
def example_installed(site: Path) -> Iterator[None]:
    """Have the example importable in this process."""
    install_example(site)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        yield
        for name in [name for name in sys.modules if name.partition(".")[0] == "my_package"]:
            del sys.modules[name]


class _Doubling(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        x = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["x"]
        bad = any(POISON in row for row in x)
        found: Any = "poison row" if bad else {"y": [[2 * value for value in row] for row in x]}
        body = json.dumps(found).encode()
        self.send_response(400 if bad else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # connections that come at the same moment


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """A server with this handler. Gives its URL. It also ends if the test fails: its thread would keep the process alive."""
    server = _Server(("127.0.0.1", 0), handler)
    thread = Thread(target=lambda: server.serve_forever(poll_interval=0.01))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def json_server() -> Iterator[str]:
    """A server that doubles numbers in JSON. Gives its URL."""
    with serving(_Doubling) as url:
        yield f"{url}/score"
