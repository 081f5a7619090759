"""Sends an executor's requests, and reports how long each took."""

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from millstream.inference.errors import InferenceError, ModelConfigError
from millstream.inference.executors.openai.client import Client
from millstream.inference.executors.openai.completion import Completion
from millstream.inference.executors.openai.embeddings import Embeddings, embeddings_of
from millstream.inference.executors.openai.errors import ModelNotFound, RequestRefused
from millstream.inference.executors.openai.server_options import OpenAIServer
from millstream.inference.executors.request_report import RequestReport

log = logging.getLogger(__name__)
T = TypeVar("T")

_PATHS = {"chat": "/chat/completions", "text_completion": "/completions", "embeddings": "/embeddings"}
"""Operation, as OpenTelemetry names it -> the path behind the server's URL."""


class Requester:
    """Sends the requests of one model."""

    def __init__(self, server: OpenAIServer, model: str, operation: str, place: str) -> None:
        """Args:
        server: where the servers are.
        model: the model's name there.
        operation: chat, text_completion or embeddings.
        place: how messages name the model version.

        Raises:
            ModelConfigError: aiohttp is not installed.
        """
        self.model = model
        self.report: Callable[[RequestReport], object] = lambda _report: None  # called after each request
        self.sample: Callable[[], Awaitable[object]]  # sends one request; set before `start`
        self._client = Client(server, model, self._check)
        self._timeout = server.timeout
        self._operation = operation
        self._place = place
        self._path = _PATHS[operation]
        self._passed: set[str] = set()  # URLs of servers that answered a sample

    async def start(self) -> None:
        """Check all servers. At least one must pass; the others may come later.

        Raises:
            ModelConfigError: a server refuses the request.
            ExecutorUnavailable: no server has the model or can answer now.
        """
        await self._client.start()

    async def completion(self, body: Mapping[str, Any], timeout: float) -> Completion:
        """A completion. Raises as `Client.complete`."""

        def report(found: Completion, started: float, seconds: float) -> RequestReport:
            first = None if found.first_token is None else found.first_token - started
            return self._report(seconds, first, found.input_tokens, found.output_tokens)

        return await self._timed(self._client.complete(self._path, {"model": self.model, **body}, timeout), report)

    async def embeddings(self, body: Mapping[str, Any], texts: int, timeout: float) -> tuple[Embeddings, int | None]:
        """Embeddings, and the tokens that the server reports. Raises as `Client.post` and `embeddings_of`."""

        async def ask() -> tuple[Embeddings, int | None]:
            response, where = await self._client.post(self._path, {"model": self.model, **body}, timeout)
            return embeddings_of(response, texts, where)

        return await self._timed(ask(), lambda found, _started, seconds: self._report(seconds, None, found[1]))

    async def _check(self, url: str) -> None:
        """Check that the server has the model, and that it takes requests as config.yaml describes them.

        The second time, no sample is sent: it costs tokens, and the server has answered one before.
        """
        try:
            there = await self._client.models(self._timeout)
        except ModelNotFound:  # some servers have no list
            there = []
        if url in self._passed:
            return
        listed = ", ".join(sorted(there)[:20]) or "no list of models"
        try:
            await self.sample()
        except ModelNotFound as error:
            raise ModelNotFound(
                f"{self._place}: expected in `server.model` a model that the server has (there: {listed}), found {self.model}. "
                f"If the server is still loading it, wait: {error}"
            ) from None
        except RequestRefused as error:
            raise ModelConfigError(
                f"{self._place}: the server does not take requests as `request` describes them, tried with the word test in "
                f"place of texts: {error}. Correct `request.parameters`, `request.response_format` or `server.model`."
            ) from None
        self._passed.add(url)
        if there and not {self.model, f"{self.model}:latest"} & set(there):
            log.warning(
                "%s: %s answers requests for model %s, but its list of models does not have it (there: %s). Check "
                "`server.model`: some servers answer with another model in place of one that they do not have",
                self._place,
                url,
                self.model,
                listed,
            )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _timed(self, request: Awaitable[T], report: Callable[[T, float, float], RequestReport]) -> T:
        started = time.monotonic()
        try:
            found = await request
        except InferenceError as error:
            self.report(self._report(time.monotonic() - started, error=type(error).__name__))
            raise
        self.report(report(found, started, time.monotonic() - started))
        return found

    def _report(
        self,
        seconds: float,
        first: float | None = None,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        error: str = "",
    ) -> RequestReport:
        return RequestReport(self._operation, self.model, seconds, first, input_tokens, output_tokens, error)
