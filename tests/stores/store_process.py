"""A store of models as a child process of the tests. It can be killed, frozen and started again with its data."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

import pytest

from millstream.topics.local.child import end, start
from millstream.topics.local.ports import free_ports
from tests.broker.clients import wait_until

if TYPE_CHECKING:
    from types import TracebackType

HOST = "127.0.0.1"
_READY_TIMEOUT_S = 60


class StoreProcess(ABC):
    """A store of its own, empty at first; a context manager."""

    title: ClassVar[str]  # for messages
    scheme: ClassVar[str]  # of the URLs of its models
    package: ClassVar[str]  # that reads it
    extra: ClassVar[str]  # Millstream's, with that package
    secrets: ClassVar[tuple[str, ...]] = ()  # that no message may show
    ends_by: ClassVar[signal.Signals] = signal.SIGKILL
    ready_at: ClassVar[str]  # path that it answers once it is ready

    def __init__(self) -> None:
        (self.port,) = free_ports(1)
        self.folder = Path(tempfile.mkdtemp(prefix=f"millstream-{self.title.lower()}-"))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    @abstractmethod
    def client(self) -> dict[str, str]:
        """The options of `model.client`."""

    @abstractmethod
    def command(self) -> list[str]:
        """The command line. Skips the test where the program can't be had."""

    def environ(self) -> dict[str, str]:
        """More variables of its environment."""
        return {}

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it answers. Skips the test where the client's package is missing."""
        pytest.importorskip(self.package, reason=f"needs {self.package}: .venv/bin/pip install -e '.[{self.extra}]'")
        log = self.folder / "log"
        environ = {**os.environ, "HOME": str(self.folder), **self.environ()}
        self._process = process = start(self.command(), log, cwd=self.folder, env=environ)

        def ready() -> bool:
            assert process.poll() is None, f"{self.title} ended. Its log:\n{log.read_text(errors='replace')}"
            return _answers(f"{self.url}{self.ready_at}")

        wait_until(ready, _READY_TIMEOUT_S, self.title)

    def kill(self) -> None:
        """End it; its data stays."""
        process, self._process = self._process, None
        if process is not None:
            end(process, self.ends_by)

    def freeze(self) -> None:
        """Let it keep its connections and answer nothing."""
        tasks = Path(f"/proc/{self._signal(signal.SIGSTOP)}/task")

        def states() -> set[str]:
            return {(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks.iterdir()}

        wait_until(lambda: states() == {"T"}, _READY_TIMEOUT_S, "all threads to stop")

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> int:
        """Send a signal. Returns the process ID."""
        assert self._process is not None
        os.kill(self._process.pid, number)
        return self._process.pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def _answers(url: str) -> bool:
    """Whether it answers, also with an error of its own."""
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except urllib.error.HTTPError as error:
        return error.code < 500
    except (urllib.error.URLError, OSError):
        return False
