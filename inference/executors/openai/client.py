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
from typing import Any, TypeVar

import msgspec

from millstream.inference.errors import ExecutorUnavailable, InferenceError, ModelConfigError, ModelRejected, Throttled
from millstream.inference.executors.error_classification import line_of
from millstream.inference.executors.openai.completion import Completion, CompletionBuilder
from millstream.inference.executors.openai.endpoints import Endpoint, Endpoints
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


class _Unreachable(ExecutorUnavailable):
    """There is no connection to the server."""


class Client:
    """The connections to the servers of one model. All calls come from one event loop."""

    def __init__(self, server: OpenAIServer, model: str) -> None:
        """Args:
        server: where the servers are.
        model: the model's name there.

        Raises:
            ModelConfigError: aiohttp is not installed.
        """
        self._aiohttp = _aiohttp()
        self._model = model
        self._headers = server.request_headers()
        self._endpoints = Endpoints(server.urls)
        self._opened: Any = None  # aiohttp.ClientSession, which belongs to the event loop of the first request

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

        async def ask(one: Endpoint) -> Completion:
            builder = CompletionBuilder(one.url)
            async with self._response(one, "POST", path, timeout, body) as response:
                if body.get("stream"):
                    # If the connection is cut, the completion may be whole anyway.
                    with suppress(self._aiohttp.ClientPayloadError):
                        await _read_stream(response, builder)
                else:
                    builder.add_whole(await _read_whole(response, one.url))
                return builder.completion()

        return await self._from_any(ask)

    async def post(self, path: str, body: Mapping[str, Any], timeout: float) -> tuple[bytes, str]:
        """Send a request, and return the response's body, and the server's name for messages. Raises as `complete`."""

        async def ask(one: Endpoint) -> tuple[bytes, str]:
            async with self._response(one, "POST", path, timeout, body) as response:
                return await _read_whole(response, one.url), one.url

        return await self._from_any(ask)

    async def models(self, timeout: float) -> list[str]:
        """The names of the server's models. Raises as `complete`."""

        async def ask(one: Endpoint) -> bytes:
            async with self._response(one, "GET", "/models", timeout) as response:
                return await _read_whole(response, one.url)

        try:
            return [one.id for one in msgspec.json.decode(await self._from_any(ask), type=_Models).data]
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return []

    async def close(self) -> None:
        """Close the connections."""
        if self._opened is not None:
            await self._opened.close()

    async def _from_any(self, ask: Callable[[Endpoint], Awaitable[T]]) -> T:
        """What a server answers. If no connection to it is possible, the next one is asked."""
        while True:
            one = self._endpoints.take(time.monotonic())
            try:
                answer = await ask(one)
            except (ModelRejected, Throttled):
                self._endpoints.succeeded(one)
                raise
            except InferenceError as error:
                self._endpoints.failed(one, now := time.monotonic())
                if not isinstance(error, _Unreachable) or not self._endpoints.any_works(now):
                    raise
            else:
                self._endpoints.succeeded(one)
                return answer
            finally:
                self._endpoints.release(one)

    @asynccontextmanager
    async def _response(
        self, one: Endpoint, method: str, path: str, timeout: float, body: Mapping[str, Any] | None = None
    ) -> AsyncIterator[Any]:
        """A response with a status of success. Errors while it is read become those of `complete`, too."""
        try:
            async with await self._send(method, one.url + path, timeout, body) as response:
                if response.status != 200:
                    said = await response.content.read(1 << 16)
                    raise error_of(response.status, response.headers, said, one.url, self._model)
                yield response
        except (TimeoutError, self._aiohttp.ClientError, OSError) as error:
            raise self._away(one, error, timeout) from error

    async def _send(self, method: str, url: str, timeout: float, body: Mapping[str, Any] | None) -> Any:
        """The response, as soon as its status is known."""
        options = {
            "data": None if body is None else _encoded(body),
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

    def _away(self, one: Endpoint, error: Exception, timeout: float) -> ExecutorUnavailable:
        """The error for a server that does not answer."""
        if isinstance(error, TimeoutError) and not isinstance(error, self._aiohttp.ConnectionTimeoutError):
            return ExecutorUnavailable(
                f"{one.url} did not answer within {timeout:.3g} s. If it only needs longer: allow more with `server.timeout` in "
                f"config.yaml"
            )
        if isinstance(error, self._aiohttp.ClientConnectorCertificateError):
            return ExecutorUnavailable(
                f"{one.url} has a certificate that this machine does not trust: {line_of(error)}. Install its authority's "
                f"certificate here, or correct the URL"
            )
        if isinstance(error, self._aiohttp.ClientPayloadError):
            return ExecutorUnavailable(f"{one.url} ended its answer early: {line_of(error)}")
        number = getattr(error, "errno", None) or 0  # getaddrinfo's numbers are negative
        why = os.strerror(number) if number > 0 else line_of(error) or type(error).__name__
        return _Unreachable(
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
        raise ModelRejected("expected a prompt of Unicode text, found half of a surrogate pair in it") from None


class _Named(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Named] = []


async def _read_stream(response: Any, builder: CompletionBuilder) -> None:
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
