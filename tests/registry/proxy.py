"""A TCP proxy whose line a test can cut: what is behind it is as good as stopped, and keeps its state."""

from __future__ import annotations

import select
import threading
from contextlib import suppress
from socket import create_connection
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import TYPE_CHECKING, Self

from millstream.topics.local.ports import free_ports

if TYPE_CHECKING:
    from types import TracebackType

_HOST = "127.0.0.1"
_TURN_S = 0.01  # how soon a cut is noticed


class Proxy:
    """Passes what comes to `port` on to another port of this machine; a context manager."""

    def __init__(self, upstream: int) -> None:
        (self.port,) = free_ports(1)
        self._upstream = upstream
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def connect(self) -> None:
        """Listen, on the same port each time."""
        self._server = _Server(self.port, self._upstream)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(_TURN_S,), name="proxy")
        self._thread.start()

    def cut(self) -> None:
        """End all connections and refuse new ones until `connect`."""
        if self._server is None or self._thread is None:
            return
        self._server.cut.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()  # waits for the connections to end
        self._server = self._thread = None

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()


class _Server(ThreadingTCPServer):
    allow_reuse_address = True

    def __init__(self, port: int, upstream: int) -> None:
        super().__init__((_HOST, port), _Connection)
        self.upstream = upstream
        self.cut = threading.Event()


class _Connection(BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        with create_connection((_HOST, self.server.upstream)) as upstream, suppress(ConnectionError):
            to = {self.request: upstream, upstream: self.request}
            while not self.server.cut.is_set():
                for readable in select.select(list(to), [], [], _TURN_S)[0]:
                    data = readable.recv(65536)
                    if not data:
                        return
                    to[readable].sendall(data)
