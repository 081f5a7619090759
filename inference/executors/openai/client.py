"""Sends requests to servers with OpenAI's API, over HTTP with aiohttp.

The `openai` package isn't used: for a streamed completion it takes ten times the CPU.
"""

import asyncio
import importlib
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from millstream.inference.errors import ExecutorUnavailable, ModelConfigError, NotSent, TimedOut
from millstream.inference.executors.endpoints import Endpoints
from millstream.inference.executors.error_classification import line_of
from millstream.inference.executors.openai.completion import Completion, CompletionBuilder, EndedEarly
from millstream.inference.executors.openai.errors import error_of
from millstream.inference.executors.openai.server_options import OpenAIServer
from millstream.inference.executors.openai.server_sent_events import EventStream

# Seconds that an idle connection is kept. Uvicorn, in front of many servers, closes it after 5: a request that is sent at this
# moment fails.
KEEP_ALIVE = 4.0
CONNECT_TIMEOUT = 5.0  # seconds
END_TIMEOUT = 0.25  # seconds that the end of a response may take behind its last event
MAX_BODY_BYTES = 64 << 20  # of a response that is not streamed
_ENCODER = msgspec.json.Encoder()


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One server."""

    url: str


class Client:
    """The connections to the servers of one model. All calls come from one event loop."""

    def __init__(self, server: OpenAIServer, model: str, check: Callable[[str], Awaitable[object]]) -> None:
        """Args:
        server: where the servers are.
        model: the model's name there.
        check: checks the server with this URL, see `Endpoints`. What it sends with this client goes to this server.

        Raises:
            ModelConfigError: aiohttp is not installed.
        """
        self._aiohttp = _aiohttp()
        self._model = model
        self._headers = server.request_headers()
        self._usual = server.timeout
        self._endpoints = Endpoints([Endpoint(url) for url in server.urls], lambda one: check(one.url))
        self._opened: Any = None  # aiohttp.ClientSession, which belongs to the event loop of the first request

    async def start(self) -> None:
        """See `Endpoints.start`."""
        await self._endpoints.start()

    async def complete(self, path: str, body: Mapping[str, Any], timeout: float) -> Completion:
        """Ask for a completion, streamed if the body says so.

        Args:
            path: behind the server's URL.
            body: of the request.
            timeout: seconds for the whole completion.

        Raises:
            ModelRejected: the server rejects the request.
            ExecutorUnavailable: it can't answer now, or its answer ended early.
        """

        data = _encoded(body)

        async def ask(one: Endpoint, left: float) -> Completion | EndedEarly:
            builder = CompletionBuilder(one.url)
            async with self._response(one, "POST", path, left, data) as response:
                if body.get("stream"):
                    await self._read_stream(response, builder)
                else:
                    builder.add_whole(await _read_whole(response, one.url))
            try:
                return builder.completion()
            except EndedEarly as error:
                if error.empty:
                    return error  # some servers answer so to a prompt that is too long: the server is not away
                raise

        found = await self._endpoints.call(ask, timeout, self._usual)
        if isinstance(found, EndedEarly):
            raise found
        return found

    async def post(self, path: str, body: Mapping[str, Any], timeout: float) -> tuple[bytes, str]:
        """Send a request, and return the response's body, and the server's name for messages. Raises as `complete`."""

        data = _encoded(body)

        async def ask(one: Endpoint, left: float) -> tuple[bytes, str]:
            async with self._response(one, "POST", path, left, data) as response:
                return await _read_whole(response, one.url), one.url

        return await self._endpoints.call(ask, timeout, self._usual)

    async def models(self, timeout: float) -> list[str]:
        """The names of the server's models. Raises as `complete`."""

        async def ask(one: Endpoint, left: float) -> bytes:
            async with self._response(one, "GET", "/models", left) as response:
                return await _read_whole(response, one.url)

        found = await self._endpoints.call(ask, timeout, self._usual)
        try:
            return [one.id for one in msgspec.json.decode(found, type=_Models).data]
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return []

    async def close(self) -> None:
        """Close the connections."""
        await self._endpoints.stop()
        if self._opened is not None:
            await self._opened.close()

    @asynccontextmanager
    async def _response(
        self, one: Endpoint, method: str, path: str, timeout: float, data: bytes | None = None
    ) -> AsyncIterator[Any]:
        """A response with a status of success. Errors while it is read become those of `complete`, too."""
        try:
            async with await self._send(method, one.url + path, timeout, data) as response:
                if response.status != 200:
                    said = await response.content.read(1 << 16)
                    raise error_of(response.status, response.headers, said, one.url, self._model)
                yield response
        except (TimeoutError, self._aiohttp.ClientError, OSError) as error:
            raise self._away(one, error, timeout) from error

    async def _send(self, method: str, url: str, timeout: float, data: bytes | None) -> Any:
        """The response, as soon as its status is known."""
        options = {
            "data": data,
            "timeout": self._aiohttp.ClientTimeout(total=timeout, sock_connect=min(timeout, CONNECT_TIMEOUT)),
            "allow_redirects": False,  # the API key must not go elsewhere
        }
        try:
            return await self._session().request(method, url, **options)
        except self._aiohttp.ClientConnectorError:
            raise
        except (self._aiohttp.ServerDisconnectedError, self._aiohttp.ClientOSError):
            # The server may have closed a connection that was kept open, just before the request.
            return await self._session().request(method, url, **options)

    async def _read_stream(self, response: Any, builder: CompletionBuilder) -> None:
        """Add the chunks of a stream, until the server ends it."""
        events = EventStream()
        try:
            async for chunk in response.content.iter_any():
                now = time.monotonic()
                for event in events.feed(chunk):
                    builder.add(event, now)
                if builder.done:
                    await _read_end(response)
                    return
            for event in events.end():
                builder.add(event, time.monotonic())
        except ValueError as error:
            raise ExecutorUnavailable(f"the server answers something other than a stream of events: {error}") from None
        except self._aiohttp.ClientPayloadError:  # the completion may be whole anyway
            builder.cut = True
        # HTTP can't say whether such a stream was cut: its end is that of the connection.
        builder.cut |= response.headers.get("Transfer-Encoding") != "chunked" and response.content_length is None

    def _away(self, one: Endpoint, error: Exception, timeout: float) -> ExecutorUnavailable:
        """The error for a server that does not answer."""
        if isinstance(error, TimeoutError) and not isinstance(error, self._aiohttp.ConnectionTimeoutError):
            return TimedOut(
                f"{one.url} did not answer within {round(timeout, 2):g} s. If it only needs longer: allow more with "
                f"`server.timeout` in config.yaml"
            )
        if isinstance(error, self._aiohttp.ClientConnectorCertificateError):
            return ExecutorUnavailable(
                f"{one.url} has a certificate that this machine does not trust: {line_of(error)}. Install its authority's "
                f"certificate here, or correct the URL"
            )
        if isinstance(error, self._aiohttp.ClientPayloadError):
            return ExecutorUnavailable(f"{one.url} ended its answer early: {line_of(error)}")
        if isinstance(error, self._aiohttp.ConnectionTimeoutError) and timeout < CONNECT_TIMEOUT:
            return TimedOut(f"no connection to {one.url} within {timeout:.3g} s")
        number = getattr(error, "errno", None) or 0  # getaddrinfo's numbers are negative
        why = os.strerror(number) if number > 0 else line_of(error) or type(error).__name__
        return ExecutorUnavailable(
            f"{one.url} does not answer: {why}. Start the server, or correct `server.urls` in config.yaml"
        )

    def _session(self) -> Any:
        if self._opened is None:
            self._opened = self._aiohttp.ClientSession(
                connector=self._aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE),
                headers={"Content-Type": "application/json", **self._headers},
                cookie_jar=self._aiohttp.DummyCookieJar(),
            )
        return self._opened


def _encoded(body: Mapping[str, Any]) -> bytes:
    try:
        return _ENCODER.encode(body)
    except UnicodeEncodeError:
        raise NotSent("expected a prompt of Unicode text, found half of a surrogate pair in it") from None


class _Named(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Named] = []


async def _read_end(response: Any) -> None:
    """Wait for the end of the response behind its last event: only then the connection can take another request."""
    with suppress(TimeoutError):
        async with asyncio.timeout(END_TIMEOUT):
            while not response.content.at_eof():
                await response.content.readany()


async def _read_whole(response: Any, where: str) -> bytes:
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            raise ExecutorUnavailable(f"{where} answers with more than {MAX_BODY_BYTES:,} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


def _aiohttp() -> Any:
    try:
        return importlib.import_module("aiohttp")
    except ImportError as error:
        raise ModelConfigError(
            f"a model of the repository is on a server with OpenAI's API, which is called with aiohttp, and aiohttp can't be "
            f"imported here ({line_of(error)}). Install Millstream's extra `openai`: {sys.executable} -m pip install "
            f"'millstream[openai]'"
        ) from None
