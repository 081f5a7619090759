"""A model server as a child process: started, killed, and started again on the same ports."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from benchmarks.environments import ROOT
from benchmarks.errors import PeerFailedError
from millstream.topics.local.child import start
from millstream.topics.local.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

CACHE = ROOT / ".cache" / "servers"
HOST = "127.0.0.1"
READY_TIMEOUT = 90.0  # seconds
STOP_TIMEOUT = 20.0  # seconds


class ModelServer:
    """A server of the Open Inference Protocol; a context manager that leaves no process behind.

    Start it from a thread that stays: the process ends with it.
    """

    def __init__(self, models: Path) -> None:
        """Args:
        models: the server's model repository.
        """
        self.models = models
        self.folder = Path(tempfile.mkdtemp(prefix="millstream-server-"))
        self.http_port, self.grpc_port, self.metrics_port = free_ports(3)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def grpc(self) -> str:
        """Its URL for gRPC."""
        return f"grpc://{HOST}:{self.grpc_port}"

    @property
    def http(self) -> str:
        """Its URL for HTTP."""
        return f"http://{HOST}:{self.http_port}"

    @property
    def log(self) -> str:
        """What the server has said so far."""
        file = self.folder / "server.log"
        return file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""

    @property
    def pid(self) -> int:
        """The process, which must run."""
        assert self._process is not None
        return self._process.pid

    def command(self) -> Sequence[str]:
        """The command that runs it. Raises LeftOutError."""
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        """Variables that its process needs."""
        return {}

    def start(self, *, wait: bool = True) -> Self:
        """Start it, and wait until all its models are ready. Raises LeftOutError, PeerFailedError."""
        command, environment = self.command(), {**os.environ, **self.environment()}
        self._process = start(command, self.folder / "server.log", cwd=self.folder, env=environment)
        if wait:
            self.wait_ready()
        return self

    def wait_ready(self) -> None:
        """Wait until it answers. Raises PeerFailedError."""
        until = time.monotonic() + READY_TIMEOUT
        while not self.answers("/v2/health/ready"):
            if self._process is None or self._process.poll() is not None or time.monotonic() > until:
                raise PeerFailedError(f"the server did not get ready. Its log ends:\n{self.log[-3000:]}")
            time.sleep(0.05)

    def answers(self, path: str) -> bool:
        """Whether it answers with success."""
        with suppress(OSError), urllib.request.urlopen(f"{self.http}{path}", timeout=5) as answer:
            return bool(answer.status == 200)
        return False

    def post(self, path: str) -> None:
        """Send an empty POST, such as for Triton's model control. Raises OSError."""
        with urllib.request.urlopen(
            urllib.request.Request(f"{self.http}{path}", data=b"{}", method="POST"), timeout=30
        ):
            pass

    def send(self, what: signal.Signals) -> None:
        """Send a signal to all of its processes."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, what)

    def kill(self) -> None:
        """End it like a crash."""
        self.send(signal.SIGKILL)
        assert self._process is not None
        self._process.wait()

    def stop(self) -> None:
        """End it."""
        if self._process is None or self._process.poll() is not None:
            return
        self.send(signal.SIGCONT)
        self.send(signal.SIGTERM)
        try:
            self._process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if error is not None:
            error.add_note(f"The server's log ends:\n{self.log[-3000:]}")
