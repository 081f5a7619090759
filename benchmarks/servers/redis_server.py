"""Debian's Redis server as a child process: empty at first, and it saves nothing by itself."""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from millstream.topics.local.child import end, start
from millstream.topics.local.ports import free_ports

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping
    from types import TracebackType

    import redis

MISSING = (
    None if shutil.which("redis-server") else "needs redis-server: apt-get install --no-install-recommends redis-server"
)
HOST = "127.0.0.1"
READY_TIMEOUT = 60.0  # seconds


class RedisServer:
    """A server of its own; a context manager."""

    def __init__(self, *options: str) -> None:
        """`options` are those of the program."""
        (self.port,) = free_ports(1)
        self._options = options
        self._folder = Path(tempfile.mkdtemp(prefix="millstream-redis-"))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The address of its first database."""
        return f"redis://{HOST}:{self.port}/0"

    def client(self, **settings: Any) -> redis.Redis:
        """A client of redis-py with its defaults, as other programs have."""
        import redis  # noqa: PLC0415  (an extra)

        return redis.Redis(HOST, self.port, **settings)

    def put(self, hashes: Mapping[str, Mapping[str, Any]]) -> None:
        """Write hashes: key -> fields."""
        with self.client() as client, client.pipeline(transaction=False) as pipeline:
            for key, fields in hashes.items():
                pipeline.hset(key, mapping=dict(fields))
            pipeline.execute()

    def start(self) -> None:
        """Start it, and wait until it answers. It keeps its port over restarts."""
        command = ["redis-server", "--port", str(self.port), "--bind", HOST, "--dir", str(self._folder)]
        log = self._folder / "redis.log"
        before = log.stat().st_size if log.exists() else 0
        process = start([*command, "--save", "", "--appendonly", "no", *self._options], log)
        self._process = process

        until = time.monotonic() + READY_TIMEOUT
        while b"Ready to accept connections" not in log.read_bytes()[before:]:
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(
                    f"Redis ended, or isn't ready after {READY_TIMEOUT:g} s. Its log:\n{log.read_text()}"
                )
            time.sleep(0.01)

    def kill(self) -> None:
        """Kill it. Its keys are gone, unless a client has called `save`: then `start` brings back those of that time."""
        process, self._process = self._process, None
        assert process is not None
        end(process, signal.SIGKILL)

    def freeze(self) -> None:
        """Stop its process (SIGSTOP): connections stay open, and nothing answers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it continue."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)
