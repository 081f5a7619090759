"""The server of llama-cpp-python with a tiny model: a real server with OpenAI's API that needs no GPU and no download of a model.

`make llama` builds it once into .cache/servers/llama, from pinned sources: 20 minutes on two cores. Tests and benchmarks never
build it. They use it where it is there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Self

from benchmarks import servers
from benchmarks.environments import ROOT
from millstream.topics.local.child import end, start
from millstream.topics.local.ports import free_ports

if TYPE_CHECKING:
    from types import TracebackType

SOURCES = Path(__file__).parent / "llama"
CACHE = servers.CACHE / "llama"
PYTHON = CACHE / "venv" / "bin" / "python"
MODEL = CACHE / "tiny.gguf"
MARK = CACHE / "installed"
WHEELS = CACHE / "wheels"
READY_TIMEOUT = 60.0  # seconds
CONTEXT = 1024  # tokens
PINS = ("requirements.txt", "source.txt")


def missing() -> str | None:
    """Why the server can't be started; None: it can."""
    if MARK.exists() and MARK.read_text() == _digest():
        return None
    return "llama-cpp-python's server is not built: `make llama` builds it once (20 minutes)"


def install() -> None:
    """Build the server and write its model, unless they are there."""
    if missing() is None:
        return
    MARK.unlink(missing_ok=True)
    uv = str(Path(sys.executable).with_name("uv"))
    _run(uv, "venv", "--quiet", "--clear", "--seed", "--python", sys.executable, str(CACHE / "venv"))
    into = [uv, "pip", "install", "--quiet", "--no-deps", "--python", str(PYTHON)]
    _run(*into, "--require-hashes", "-r", str(SOURCES / "requirements.txt"))
    version = (SOURCES / "source.txt").read_text().split()[0].partition("==")[2]
    if not (wheels := list(WHEELS.glob(f"llama_cpp_python-{version}-*.whl"))):
        print("Building llama-cpp-python (20 minutes on two cores) ...", file=sys.stderr)
        options = ["--no-deps", "--require-hashes", "-r", str(SOURCES / "source.txt"), "--wheel-dir", str(WHEELS)]
        # Without the instructions that only this machine's processor has: the cache may move to another one.
        _run(str(PYTHON), "-m", "pip", "wheel", "--quiet", *options, CMAKE_ARGS="-DGGML_NATIVE=OFF")
        wheels = list(WHEELS.glob(f"llama_cpp_python-{version}-*.whl"))
    _run(*into, str(wheels[0]))
    _run(str(PYTHON), str(SOURCES / "make_model.py"), str(MODEL))
    MARK.write_text(_digest())


class LlamaServer:
    """The server, in a process of its own, until it is left. Its model is called `tiny`.

    It counts to ten for any prompt, and says " pos" or " neg" where the prompt ends with + or -.
    """

    def __init__(self, *, embedding: bool = False, interrupts: bool = False, port: int | None = None) -> None:
        """Args:
        embedding: whether it embeds texts (384 numbers) in place of completing them.
        interrupts: whether a new request cuts off a stream that is running.
        port: None takes a free one.
        """
        self._folder = Path(tempfile.mkdtemp(prefix="llama-"))
        self.port = free_ports(1)[0] if port is None else port
        self.url = f"http://127.0.0.1:{self.port}/v1"
        model = {"model": str(MODEL), "model_alias": "tiny", "n_ctx": CONTEXT, "n_threads": 1, "n_threads_batch": 1}
        settings = {"host": "127.0.0.1", "port": self.port, "interrupt_requests": interrupts}
        models = [{**model, "verbose": False, "embedding": embedding}]
        (self._folder / "server.json").write_text(json.dumps({**settings, "models": models}))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        """Start it, and wait until it answers. Raises RuntimeError: it ended, or does not answer."""
        command = [str(PYTHON), "-m", "llama_cpp.server", "--config_file", str(self._folder / "server.json")]
        self._process = start(command, self._folder / "server.log")
        until = time.monotonic() + READY_TIMEOUT
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                log = (self._folder / "server.log").read_text(errors="replace")
                self.stop()
                raise RuntimeError(f"llama-cpp-python's server does not answer: {log[-2000:]}")
            time.sleep(0.1)

    def kill(self) -> None:
        """End it at once, in the middle of whatever it does."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            end(process, how)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}/models", timeout=1) as response:
            return response.status == 200 and b'"tiny"' in response.read()
        return False


def _digest() -> str:
    """Changes with what is installed."""
    names = (*PINS, "make_model.py")
    return hashlib.sha256(b"".join((SOURCES / name).read_bytes() for name in names)).hexdigest()


def _run(*command: str, **environ: str) -> None:
    subprocess.run(command, cwd=ROOT, check=True, env={**os.environ, **environ})


if __name__ == "__main__":
    install()
    print(f"llama-cpp-python's server is in {CACHE.relative_to(ROOT)}.")
