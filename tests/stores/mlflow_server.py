"""An MLflow server as a child process of the tests, in an environment of its own: pip fetches it once (0.9 GB)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest

from millstream.consumers.model_servers.environment import Packages, environment
from millstream.consumers.model_servers.errors import ServerMissing
from millstream.topics.local.child import end, start
from millstream.topics.local.ports import free_ports
from tests.broker.clients import wait_until
from tests.broker.maven import CACHE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

_HERE = Path(__file__).parent
PACKAGES = Packages(
    name="mlflow",
    title="MLflow 3.17.2",
    requirements=_HERE / "requirements" / "mlflow.txt",
    download="300 MB",
    installed="1.2 GB",
)
_READY_TIMEOUT_S = 180
_RUN_TIMEOUT_S = 300
_HOST = "127.0.0.1"
USER, PASSWORD = "admin", "password-of-these-tests"
QUIET = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}  # no processes for evaluations, which nobody asks for


def mlflow_python() -> Path:
    """The Python of the environment; skips the test where it can't be made."""
    try:
        return environment(PACKAGES, CACHE / "stores") / "bin" / "python"
    except ServerMissing as error:
        pytest.skip(f"no MLflow: {error}")


class MlflowServer:
    """A registry of its own, empty at first; a context manager."""

    def __init__(self, *options: str, artifacts: str | None = None, environ: Mapping[str, str] | None = None) -> None:
        """Args:
        options: of the command line.
        artifacts: where it keeps artifacts; None: in a folder.
        environ: more variables of its environment.
        """
        (self.port,) = free_ports(1)
        self.folder = Path(tempfile.mkdtemp(prefix="millstream-mlflow-"))
        self._options = options
        self._artifacts = artifacts or str(self.folder / "artifacts")
        # It must not see packages of the tests' own environment.
        ours = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self._environ = {
            **ours,
            "HOME": str(self.folder),
            "MLFLOW_DISABLE_TELEMETRY": "true",
            **QUIET,
            **(environ or {}),
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://{_HOST}:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        python, log = mlflow_python(), self.folder / "mlflow.log"
        stores = ["--backend-store-uri", f"sqlite:///{self.folder}/mlflow.db", "--serve-artifacts"]
        where = [
            "--artifacts-destination",
            self._artifacts,
            "--host",
            _HOST,
            "--port",
            str(self.port),
            "--workers",
            "1",
        ]
        command = [str(python), "-m", "mlflow", "server", *stores, *where, *self._options]
        self._process = process = start(command, log, cwd=self.folder, env=self._environ)

        def ready() -> bool:
            assert process.poll() is None, f"MLflow ended. Its log:\n{log.read_text(errors='replace')}"
            return _answers(f"{self.url}/health")

        wait_until(ready, _READY_TIMEOUT_S, "MLflow")

    def run(self, program: str, *arguments: str, environ: Mapping[str, str] | None = None) -> Any:
        """Run a program of this folder in MLflow's environment, against this server; returns the JSON that it prints last."""
        done = subprocess.run(
            [str(mlflow_python()), str(_HERE / program), *arguments],
            env={**self._environ, "MLFLOW_TRACKING_URI": self.url, **(environ or {})},
            capture_output=True,
            text=True,
            check=False,
            timeout=_RUN_TIMEOUT_S,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def kill(self) -> None:
        """End it at once, with its own children; its data stays."""
        process, self._process = self._process, None
        if process is not None:
            os.killpg(process.pid, signal.SIGKILL)
            end(process, signal.SIGKILL)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
