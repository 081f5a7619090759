"""Calls to a schema registry, each with a bound on its total time and on the size of its response.

An HTTP client's timeouts bound the wait for the next byte, so a server that sends one byte a second never times out. Here
the timeout covers the whole call, from resolving the host name to the last byte. That needs an event loop, which runs in a
thread of its own.
"""

import asyncio
import concurrent.futures
import json
import ssl
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.schemas.errors import BadSchemaError
from millstream.schemas.failures import Failure, failure_of

if TYPE_CHECKING:
    import httpx2

CALL_TIMEOUT = 10.0  # timeout of a whole call
MAX_RESPONSE_BYTES = 4 << 20  # of a response: twice the largest allowed schema with all its quotes escaped
_MAX_TRIES = 2  # retry once: an idle keep-alive connection may have been closed
_CANCEL_TIMEOUT = 5.0  # more, for the event loop to cancel a call
_HEADERS = {
    "Accept": "application/vnd.schemaregistry.v1+json, application/vnd.schemaregistry+json, application/json",
    "Accept-Encoding": "identity",  # a small compressed response could expand to a huge one
    "Content-Type": "application/vnd.schemaregistry.v1+json",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What the registry sent."""

    status: int
    body: bytes

    def json(self) -> Any:
        """The body as JSON; None if it isn't JSON."""
        try:
            return json.loads(self.body.decode())
        except (ValueError, RecursionError):
            return None


class NoAnswerError(Exception):
    """A call got no usable response. Raised by `RegistryHttp.call`; `failure` says whether to retry."""

    def __init__(self, message: str, failure: Failure) -> None:
        super().__init__(message)
        self.failure = failure


class RegistryHttp:
    """Client of one registry. Thread-safe.

    Raises BadSchemaError for a URL or certificates that can't be used.
    """

    def __init__(self, url: str, username: str | None, password: str | None, ca: Path | None) -> None:
        """Args:
        url: without user, query and fragment.
        username: for basic authentication, with the password; None: no authentication.
        password: of this user.
        ca: file of certificate authorities to trust in place of the system's.
        """
        # Imported here because it takes 0.1 s, which pipelines without a registry shouldn't pay.
        import httpx2  # noqa: PLC0415

        self._url = url.rstrip("/")
        try:
            parsed = httpx2.URL(url)
            if parsed.scheme not in ("http", "https") or not parsed.host:
                raise ValueError("it is no http:// or https:// address")
            verify = ssl.create_default_context(cafile=ca) if ca else httpx2.create_ssl_context()
            self._client = httpx2.AsyncClient(
                auth=(username, password or "") if username is not None else None,
                headers=_HEADERS,
                verify=verify,
                timeout=None,
                follow_redirects=False,
            )
        except (ValueError, OSError, httpx2.InvalidURL) as error:
            raise BadSchemaError(f"schemas.registry: {url} can't be used: {error}: check url and ca") from error
        self._loop: asyncio.AbstractEventLoop | None = None
        self._starting = threading.Lock()

    def call(self, method: str, path: str, body: object = None, *, seconds: float = CALL_TIMEOUT) -> Answer:
        """Return the response, whatever its status. Raises NoAnswerError, also after `seconds` in all."""
        content = None if body is None else json.dumps(body).encode()
        answered = asyncio.run_coroutine_threadsafe(self._within(seconds, method, path, content), self._running())
        try:
            return answered.result(seconds + _CANCEL_TIMEOUT)
        except concurrent.futures.TimeoutError:
            answered.cancel()
            raise NoAnswerError(f"no answer within {seconds:g} s", "wait") from None

    async def _within(self, seconds: float, method: str, path: str, content: bytes | None) -> Answer:
        try:
            async with asyncio.timeout(seconds):
                for left in reversed(range(_MAX_TRIES)):
                    try:
                        async with self._client.stream(method, self._url + path, content=content) as response:
                            return await _read(response)
                    except Exception as error:
                        if not left or failure_of(error) != "wait":
                            raise
                raise AssertionError("the last try returns or raises")
        except TimeoutError:
            raise NoAnswerError(f"no whole answer within {seconds:g} s", "wait") from None
        except NoAnswerError:
            raise
        except Exception as error:
            cause: BaseException = error
            while isinstance(cause, BaseExceptionGroup):  # of tasks of the HTTP library
                cause = cause.exceptions[0]
            raise NoAnswerError(str(cause) or type(cause).__name__, failure_of(error)) from error
        finally:
            self._client.cookies.clear()  # unused; a registry could fill memory with them

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="registry", daemon=True).start()
            return self._loop


async def _read(response: "httpx2.Response") -> Answer:
    encoding = response.headers.get("Content-Encoding", "identity")
    if encoding.lower() != "identity":
        raise NoAnswerError("expected an answer without compression, found a compressed one", "reject")
    parts: list[bytes] = []
    size = 0
    async for part in response.aiter_raw():
        size += len(part)
        if size > MAX_RESPONSE_BYTES:
            raise NoAnswerError(f"expected an answer of at most {MAX_RESPONSE_BYTES >> 20} MiB, found more", "reject")
        parts.append(part)
    return Answer(response.status_code, b"".join(parts))
