"""An HTTP port for probes and metrics that clients can't exhaust.

A connection serves one request and is short, and the number of connections is limited. If there are too many, the oldest one is
closed. A probe sends its request at once, so it gets its answer before its connection is the oldest. One thread serves all
connections, so a flood of requests can't take more of the GIL than one thread.
"""

import asyncio
import logging
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from http import HTTPStatus

from millstream.consumers.errors import WorkerError

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 128
CONNECTION_TIMEOUT = 5.0  # seconds after which a connection is closed, whatever the client does
MAX_HEAD_BYTES = 16_384  # of the request line and the headers
_ACCEPTED_AT_ONCE = 32  # connections accepted in one turn of the event loop
_LISTEN_BACKLOG = 4096  # connections that wait in the kernel; if they are more, it drops a probe's first packet

Answer = tuple[HTTPStatus, str, bytes]
"""Status, content type and body."""
TEXT_TYPE = "text/plain; charset=utf-8"


class HttpPort:
    """Serves GET requests in a thread of its own."""

    def __init__(self, host: str, port: int, answer: Callable[[str], Answer]) -> None:
        """Open the port; 0 takes a free one.

        Args:
            host: the address to listen on.
            port: the port to listen on.
            answer: returns the response for a path (without its query); called by one thread.

        Raises:
            OSError: the port can't be opened.
            WorkerError: the thread that serves it can't start.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family)
        self.port = int(self._socket.getsockname()[1])
        self._answer = answer
        self._open: dict[asyncio.StreamWriter, None] = {}  # the open connections, the oldest first
        self._stop = asyncio.Event()
        self._started = Future[None]()
        self._thread = threading.Thread(target=self._run, name="health", daemon=True)
        self._thread.start()
        try:
            self._started.result()
        except Exception as error:
            self._socket.close()
            raise WorkerError(
                f"port {self.port} of {host}, for probes and metrics, can't be served: {type(error).__name__}: {error}. "
                "Check this process's limits of open files and memory, then start it again."
            ) from error

    def close(self) -> None:
        """Stop serving."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            if self._started.done():
                raise
            self._started.set_exception(error)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        server = await asyncio.start_server(
            self._connected, sock=self._socket, limit=MAX_HEAD_BYTES, backlog=_ACCEPTED_AT_ONCE
        )
        self._socket.listen(_LISTEN_BACKLOG)  # asyncio takes one number for both
        self._started.set_result(None)
        await self._stop.wait()
        server.close()
        for writer in self._open:
            writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= MAX_CONNECTIONS:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.transport.abort()
        self._open[writer] = None
        try:
            async with asyncio.timeout(CONNECTION_TIMEOUT):
                writer.write(_response(*await self._answer_to(reader)))
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # the client has left, or is too slow
        except asyncio.CancelledError:
            pass  # the port closes; if it were raised on, asyncio would log it with a traceback
        finally:
            self._open.pop(writer, None)
            writer.transport.abort()

    async def _answer_to(self, reader: asyncio.StreamReader) -> Answer:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, TEXT_TYPE, b"the request's headers are too large\n"
        method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        if method != "GET":
            return HTTPStatus.NOT_IMPLEMENTED, TEXT_TYPE, b"only GET\n"
        try:
            return self._answer(rest.partition(" ")[0].partition("?")[0])
        except Exception as error:
            log.warning("a request for probes or metrics failed: %s: %s", type(error).__name__, error)
            return HTTPStatus.INTERNAL_SERVER_ERROR, TEXT_TYPE, b"failed; the log says why\n"


def _response(status: HTTPStatus, kind: str, body: bytes) -> bytes:
    return (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        f"Connection: close\r\n\r\n"
    ).encode() + body
