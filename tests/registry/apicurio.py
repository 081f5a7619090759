"""Apicurio Registry as a child process of the tests: a real schema registry with Confluent's API, in memory."""

from __future__ import annotations

import atexit
import shutil
import signal
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Self

from millstream.topics.errors import BrokerError
from millstream.topics.local.child import end, start
from millstream.topics.local.fetch import OUTPUT, fetched, log_end, missing_for
from millstream.topics.local.ports import free_ports
from tests.broker.maven import CACHE

if TYPE_CHECKING:
    import subprocess
    from types import TracebackType

_VERSION = "2.6.13.Final"
_APP = CACHE / "apicurio" / f"app-{_VERSION}"
_JAR = f"apicurio-registry-app-{_VERSION}-runner.jar"
_READY_TIMEOUT_S = 90.0
_HOST = "127.0.0.1"


def missing_for_registry() -> str | None:
    """What this machine lacks to run `Apicurio`, as a sentence's end; None when it lacks nothing."""
    return missing_for(_APP)


class Apicurio:
    """A registry of its own, empty at first; a context manager. Start it from a thread that stays: it ends with it."""

    def __init__(self) -> None:
        (self.port,) = free_ports(1)
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Address of its Confluent-compatible API."""
        return api_url(self.port)

    def start(self) -> None:
        """Start the registry, fetching it first where it is missing, and wait until it answers. Raises BrokerError."""
        app = _fetched_app()
        self._folder = Path(tempfile.mkdtemp(prefix="millstream-registry-"))
        atexit.register(self.stop)  # also when the tests are interrupted
        log = self._folder / "registry.log"
        # The first compiler alone and the simplest collector: what counts here is the start.
        java = ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        settings = [f"-Dquarkus.http.host={_HOST}", f"-Dquarkus.http.port={self.port}"]
        self._process = start([*java, *settings, "-jar", str(app / _JAR)], log, cwd=self._folder)
        try:
            self._wait_until_ready(self._process, log)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the registry; what was registered is gone."""
        process, self._process = self._process, None
        if process is not None:
            end(process, signal.SIGTERM)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
            atexit.unregister(self.stop)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _wait_until_ready(self, process: subprocess.Popen[bytes], log: Path) -> None:
        """Ready means that *our* registry answers: its log says that it got the port, its health that it works."""
        listening = f"Listening on: http://{_HOST}:{self.port}"
        deadline = time.monotonic() + _READY_TIMEOUT_S
        while time.monotonic() < deadline and process.poll() is None:
            if listening in log.read_text(errors="replace") and _answers(f"http://{_HOST}:{self.port}/health/ready"):
                return
            time.sleep(0.05)
        state = "not ready in time" if process.poll() is None else f"ended with status {process.returncode}"
        raise BrokerError(
            f"Apicurio Registry did not start on port {self.port}: {state}.{log_end(log, 'Its log ends:')}"
        )


def api_url(port: int) -> str:
    """Address of the Confluent-compatible API on a port of this machine: the registry's own, or a proxy's."""
    return f"http://{_HOST}:{port}/apis/ccompat/v7"


def _fetched_app() -> Path:
    """The unpacked application (142 MB to fetch, once)."""
    artifact = f"io.apicurio:apicurio-registry-app:{_VERSION}:tar.gz:all"
    return fetched(
        _APP,
        ["dependency:unpack", f"-Dartifact={artifact}", f"-DoutputDirectory={OUTPUT}"],
        what="Apicurio Registry",
        instead="leave out the tests that need it: pytest -k 'not registry'",
    )


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
