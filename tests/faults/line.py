"""A TCP proxy between workers and a broker. A test can cut it, silence it, or slow it down."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from millstream.topics.local.ports import free_ports
from tests.broker.maven import MavenKafka

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import TracebackType

_HOST = "127.0.0.1"
_CHUNK = 65536
_UNDER_WAY = 64  # most chunks that one direction of a connection buffers


class ProxiedKafka(MavenKafka):
    """A broker with a second listener. It tells that listener's clients to connect through `line`."""

    def __init__(self) -> None:
        super().__init__()
        (self._behind,) = free_ports(1)
        self.line = Line(self._behind)

    def _settings(self) -> dict[str, object]:
        """Its server.properties."""
        plain = super()._settings()
        return plain | {
            "listeners": f"{plain['listeners']},PROXIED://{_HOST}:{self._behind}",
            "advertised.listeners": f"{plain['advertised.listeners']},PROXIED://{self.line.bootstrap}",
            "listener.security.protocol.map": f"{plain['listener.security.protocol.map']},PROXIED:PLAINTEXT",
        }

    def __enter__(self) -> Self:
        super().__enter__()
        self.line.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.line.__exit__(kind, error, trace)
        super().__exit__(kind, error, trace)


class Line:
    """Forwards connections from its port to another port of this machine; a context manager."""

    def __init__(self, upstream: int) -> None:
        (self._port,) = free_ports(1)
        self._upstream = upstream
        self._delay = 0.0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="line")
        self._server: asyncio.Server | None = None
        self._open = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def bootstrap(self) -> str:
        """`host:port` of this end."""
        return f"{_HOST}:{self._port}"

    def cut(self) -> None:
        """End all connections and refuse new ones until `mend`."""
        self._do(self._cut())

    def silence(self) -> None:
        """Forward nothing until `mend`, but keep the connections open: both sides notice only through timeouts."""
        self._do(self._silence())

    def mend(self) -> None:
        """Forward everything again, starting with the data held back."""
        self._do(self._mend())

    def slow_down(self, delay: float) -> None:
        """Delay everything by this many seconds in each direction; 0: no delay."""
        self._delay = delay

    def _do(self, what: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result(30)

    async def _cut(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in self._writers:
            writer.transport.abort()

    async def _silence(self) -> None:
        self._open.clear()

    async def _mend(self) -> None:
        self._open.set()
        if self._server is None:
            self._server = await asyncio.start_server(self._connected, _HOST, self._port)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            other_reader, other_writer = await asyncio.open_connection(_HOST, self._upstream)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, other_writer}
        self._writers |= ends
        try:
            await asyncio.gather(self._carry(reader, other_writer), self._carry(other_reader, writer))
        finally:
            self._writers -= ends

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One direction of a connection, until either side ends it."""
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_UNDER_WAY)
        arriving = asyncio.ensure_future(self._arrive(under_way, writer))
        with suppress(OSError):
            while data := await reader.read(_CHUNK):
                await under_way.put((self._loop.time() + self._delay, data))
        await under_way.put((self._loop.time() + self._delay, b""))
        await arriving

    async def _arrive(self, under_way: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        data = b"-"
        with suppress(OSError):
            while data:
                due, data = await under_way.get()
                await asyncio.sleep(due - self._loop.time())
                await self._open.wait()
                writer.write(data)
                await writer.drain()
        writer.close()
        while data:  # the other side is gone: drop the data
            _, data = await under_way.get()

    def __enter__(self) -> Self:
        self._thread.start()
        self.mend()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        self._open.set()
        await self._cut()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
