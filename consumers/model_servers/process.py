"""A model server as a child process: started, killed, and started again on the same ports."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import subprocess
import tempfile
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from millstream.consumers.model_servers.errors import ServerFailed
from millstream.consumers.model_servers.waiting import wait_for
from millstream.topics.local.child import end_guard, start, start_guard
from millstream.topics.local.ports import free_ports

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping, Sequence
    from types import TracebackType

HOST = "127.0.0.1"
READY_TIMEOUT = 90.0  # seconds
STOP_TIMEOUT = 20.0  # seconds
LOG_CHARACTERS = 3000  # of the end of the log that an error shows


class ModelServer:
    """A server of the Open Inference Protocol; a context manager that leaves no process and no file behind.

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
        self._guard: subprocess.Popen[bytes] | None = None  # ends what the server starts, if we are killed

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
        """The command that runs it."""
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        """Variables that its process needs."""
        return {}

    def start(self, *, wait: bool = True) -> Self:
        """Start it, and wait until all its models are ready. Raises ServerFailed."""
        variables = [f"{name}={value}" for name, value in self.environment().items()]
        command = ["env", *variables, *self.command()]
        self._process = start(command, self.folder / "server.log", cwd=self.folder)
        self._guard = start_guard(self._process)
        if wait:
            self.wait_ready()
        return self

    def wait_ready(self, stop: threading.Event | None = None) -> None:
        """Wait until it answers, or `stop` is set. Raises ServerFailed, StopRequested."""

        def ready() -> bool:
            self.check()  # before the answer: the port may have become another's
            return self.answers("/v2/health/ready")

        if not wait_for(ready, READY_TIMEOUT, stop):
            raise self._failed(f"did not get ready within {READY_TIMEOUT:g} s")

    def check(self) -> None:
        """Raise ServerFailed if it has ended."""
        if self._process is None:
            raise self._failed("was not started")
        if self._has_ended():
            raise self._failed(f"ended with status {self._process.returncode}")

    def _has_ended(self) -> bool:
        """Whether its process has ended. What it started then ends, too."""
        assert self._process is not None
        if self._process.poll() is None:
            return False
        if self._guard is not None:
            self.send(signal.SIGKILL)
            end_guard(self._guard)
            self._guard = None
        return True

    def _failed(self, how: str) -> ServerFailed:
        return ServerFailed(f"The server {type(self).__name__} {how}. Its log ends:\n{self.log[-LOG_CHARACTERS:]}")

    def answers(self, path: str) -> bool:
        """Whether it answers with success."""
        with (
            suppress(OSError, http.client.HTTPException),
            urllib.request.urlopen(f"{self.http}{path}", timeout=5) as answer,
        ):
            return bool(answer.status == 200)
        return False

    def get(self, path: str) -> Any:
        """What it answers in JSON. Raises ServerFailed."""
        try:
            with urllib.request.urlopen(f"{self.http}{path}", timeout=5) as answer:
                return json.load(answer)
        except (OSError, http.client.HTTPException) as error:
            raise self._failed(f"did not answer {path}: {error}") from error

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
        assert self._process is not None
        self.send(signal.SIGKILL)
        self._process.wait()
        self._has_ended()

    def stop(self) -> None:
        """End it."""
        if self._process is None or self._has_ended():
            return
        self.send(signal.SIGCONT)
        self.send(signal.SIGTERM)
        try:
            self._process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            pass
        finally:  # also after a second Ctrl-C
            self.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
            if error is not None:
                error.add_note(f"The server's log ends:\n{self.log[-LOG_CHARACTERS:]}")
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)
