"""MinIO as a child process of the tests: a real object store with S3's API. Go builds it once (150 MB, some minutes)."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest

from millstream.topics.local.child import end, start
from millstream.topics.local.ports import free_ports
from tests.broker.clients import wait_until
from tests.broker.maven import CACHE
from tests.made_once import made_once

if TYPE_CHECKING:
    from types import TracebackType

VERSION = "v0.0.0-20260212201848-7aac2a2c5b7c"
USER, PASSWORD = "test-user", "test-password-1"
_BUILD_TIMEOUT_S = 1500
_READY_TIMEOUT_S = 60
_HOST = "127.0.0.1"


def minio_program() -> Path:
    """The program; skips the test where it can't be built."""
    if shutil.which("go") is None:
        pytest.skip("no MinIO: go is not installed, and MinIO is built from its source")
    digest = VERSION.rpartition("-")[2]

    def build(folder: Path) -> None:
        made = folder / "made"
        environ = {
            "GOBIN": str(folder),
            "GOMODCACHE": str(made / "modules"),
            "GOCACHE": str(made / "build"),
            "GOTOOLCHAIN": "local",
            "GOFLAGS": "-modcacherw",
        }
        command = ["go", "install", "-ldflags", "-s -w", f"github.com/minio/minio@{VERSION}"]
        done = subprocess.run(
            command,
            env={**os.environ, **environ},
            capture_output=True,
            text=True,
            check=False,
            timeout=_BUILD_TIMEOUT_S,
        )
        shutil.rmtree(made, ignore_errors=True)
        assert done.returncode == 0, done.stderr

    return made_once(CACHE / "stores" / f"minio-{digest}", build) / "minio"


class Minio:
    """A store of its own, empty at first; a context manager. It can be killed, frozen and started again with its data."""

    def __init__(self) -> None:
        self.port, self._console = free_ports(2)
        self._folder = Path(tempfile.mkdtemp(prefix="millstream-minio-"))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://{_HOST}:{self.port}"

    @property
    def client(self) -> dict[str, str]:
        """The options of `model.client`."""
        return {"endpoint_url": self.url, "key": USER, "secret": PASSWORD}

    def start(self) -> None:
        """Start it, and wait until it answers."""
        log = self._folder / "minio.log"
        addresses = ["--address", f"{_HOST}:{self.port}", "--console-address", f"{_HOST}:{self._console}"]
        environ = {**os.environ, "MINIO_ROOT_USER": USER, "MINIO_ROOT_PASSWORD": PASSWORD, "HOME": str(self._folder)}
        command = [str(minio_program()), "server", "--quiet", *addresses, str(self._folder / "data")]
        self._process = process = start(command, log, cwd=self._folder, env=environ)

        def ready() -> bool:
            assert process.poll() is None, f"MinIO ended. Its log:\n{log.read_text(errors='replace')}"
            return _answers(f"{self.url}/minio/health/ready")

        wait_until(ready, _READY_TIMEOUT_S, "MinIO")

    def kill(self) -> None:
        """End it at once; its data stays."""
        process, self._process = self._process, None
        if process is not None:
            end(process, signal.SIGKILL)

    def freeze(self) -> None:
        """Let it keep its connections and answer nothing."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
