"""A server with OpenAI's API, in this process. It answers as llama-cpp-python's server does with the tiny model (`llama.py`).

Tests script what it does with the next requests: other answers, and all that goes wrong.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiohttp import web

from millstream.inference.executors.loop_thread import LoopThread

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from types import TracebackType

    Act = Callable[["Asked"], Awaitable[web.StreamResponse]]

COUNTING = " one two three four five six seven eight nine ten"
EMBEDDING_SIZE = 384


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that came."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]
    at: float  # seconds on the monotonic clock
    request: web.Request = field(repr=False)

    @property
    def text(self) -> str:
        """The prompt, or the last message."""
        return str(self.body["prompt"] if "prompt" in self.body else self.body["messages"][-1]["content"])


class OpenAIServer:
    """Runs on a free port, until it is left."""

    def __init__(
        self,
        *,
        models: Iterable[str] | None = ("tiny",),
        usage_in_streams: bool = True,
        key: str | None = None,
        port: int = 0,
        keeps_requests: bool = True,
    ) -> None:
        """Args:
        models: its list; None: it has none.
        usage_in_streams: whether streams end with the numbers of tokens. llama-cpp-python's don't.
        key: the API key that it wants.
        port: 0 takes a free one.
        keeps_requests: whether `asked` has all requests.
        """
        self._keeps_requests = keeps_requests
        self.asked: list[Asked] = []
        self.script: deque[Act] = deque()
        self.always: Act = self.complete
        self.most_at_once = 0
        self._at_once = 0
        self._models = models
        self._usage_in_streams = usage_in_streams
        self._key = key
        self._thread = LoopThread("openai-server")
        self._runner: web.AppRunner | None = None
        self._port = port
        self.start()
        self.url = f"http://127.0.0.1:{self._port}/v1"

    def __enter__(self) -> OpenAIServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Answer on the same port as before."""
        self._runner = self._thread.wait_for(self._serve(self._port), 10)
        self._port = self._runner.addresses[0][1]

    def kill(self) -> None:
        """Cut all connections, and answer nothing until `start`."""
        if self._runner is not None:
            self._thread.wait_for(self._runner.cleanup(), 10)
            self._runner = None

    def accept(self, key: str) -> None:
        """Accept this API key from now on."""
        self._key = key

    def close(self) -> None:
        """Stop, and cut the connections."""
        self.kill()
        self._thread.close()

    async def complete(self, asked: Asked) -> web.StreamResponse:
        """Count to ten, or say pos or neg where the text ends with + or -."""
        text = {"+": " pos", "-": " neg"}.get(asked.text[-1:], COUNTING)
        words = text.split()
        most = asked.body.get("max_tokens") or len(words)
        return await self.answer([f" {word}" for word in words[:most]], "length" if most < len(words) else "stop")(
            asked
        )

    def answer(self, tokens: Iterable[str], finish_reason: str | None = "stop", *, pause: float = 0.0) -> Act:
        """Answer with this text, in one chunk for each token. `pause`: seconds before each."""

        async def act(asked: Asked) -> web.StreamResponse:
            words = list(tokens)
            usage = {"prompt_tokens": len(asked.text.split()), "completion_tokens": len(words)}
            usage["total_tokens"] = sum(usage.values())
            is_chat = asked.path.endswith("/chat/completions")
            if not asked.body.get("stream"):
                await asyncio.sleep(pause * len(words))
                text = "".join(words)
                part: dict[str, Any] = (
                    {"message": {"role": "assistant", "content": text}} if is_chat else {"text": text}
                )
                choice = {"index": 0, "finish_reason": finish_reason, **part}
                return web.json_response({"object": "chat.completion", "choices": [choice], "usage": usage})
            events = [{"delta": {"role": "assistant"}}] if is_chat else []
            events += [{"delta": {"content": word}} if is_chat else {"text": word} for word in words]  # type: ignore[dict-item]
            events += [{"delta": {}} if is_chat else {"text": ""}]  # type: ignore[dict-item]
            chunks = [chunk_of({**event, "index": 0, "finish_reason": None}) for event in events[:-1]]
            chunks.append(chunk_of({**events[-1], "index": 0, "finish_reason": finish_reason}))
            if self._usage_in_streams and asked.body.get("stream_options", {}).get("include_usage"):
                chunks.append(sse({"choices": [], "usage": usage}))
            return await raw([*chunks, b"data: [DONE]\n\n"], pause=pause)(asked)

        return act

    async def _serve(self, port: int) -> web.AppRunner:
        app = web.Application(client_max_size=1 << 26)
        for path in ("/v1/chat/completions", "/v1/completions", "/v1/embeddings"):
            app.router.add_post(path, self._handle)
        app.router.add_get("/v1/models", self._list)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port, reuse_address=True).start()
        return runner

    async def _list(self, request: web.Request) -> web.StreamResponse:
        if (refused := self._refused(request)) is not None:
            return refused
        if self._models is None:
            return web.json_response({"detail": "Not Found"}, status=404)
        return web.json_response({"object": "list", "data": [{"id": name, "object": "model"} for name in self._models]})

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if (refused := self._refused(request)) is not None:
            return refused
        asked = Asked(request.path, request.headers, await request.json(), time.monotonic(), request)
        if self._keeps_requests:
            self.asked.append(asked)
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            if self.script:
                return await self.script.popleft()(asked)
            return await (embed(asked) if asked.path.endswith("/embeddings") else self.always(asked))
        finally:
            self._at_once -= 1

    def _refused(self, request: web.Request) -> web.Response | None:
        if self._key is None or request.headers.get("Authorization") == f"Bearer {self._key}":
            return None
        given = request.headers.get("Authorization", "")
        error = {"message": f"Incorrect API key provided: {given}", "code": "invalid_api_key"}
        return web.json_response({"error": error}, status=401)


def sse(event: object, end: bytes = b"\n\n") -> bytes:
    """An event as it is sent."""
    return b"data: " + json.dumps(event).encode() + end


def chunk_of(choice: Mapping[str, Any]) -> bytes:
    """A chunk of a completion as it is sent."""
    return sse({"object": "chat.completion.chunk", "choices": [choice]})


def said(text: str, finish_reason: str | None = None) -> bytes:
    """A chunk with this text, as it is sent."""
    return chunk_of({"index": 0, "delta": {"content": text}, "finish_reason": finish_reason})


def raw(pieces: Iterable[bytes], *, pause: float = 0.0, cut: bool = False) -> Act:
    """Send these bytes as a stream of events, then end it; with `cut`, close the connection in the middle of it."""

    async def act(asked: Asked) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(asked.request)
        for piece in pieces:
            if pause:
                await asyncio.sleep(pause)
            await response.write(piece)
        if cut:
            assert asked.request.transport is not None
            asked.request.transport.close()
        return response

    return act


def refuse(status: int, body: object, **headers: str) -> Act:
    """Answer with this status. Headers are written with underscores."""

    async def act(_: Asked) -> web.StreamResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if isinstance(body, str):
            return web.Response(status=status, text=body, headers=named)
        return web.json_response(body, status=status, headers=named)

    return act


async def hang_up(asked: Asked) -> web.StreamResponse:
    """Close the connection without an answer."""
    assert asked.request.transport is not None
    asked.request.transport.close()
    return web.Response(status=500)


def hang(seconds: float) -> Act:
    """Answer nothing for so long."""

    async def act(_: Asked) -> web.StreamResponse:
        await asyncio.sleep(seconds)
        return web.Response(status=500)

    return act


def too_long(message: str) -> Act:
    """Refuse a prompt that is too long, as llama-cpp-python does: the stream has no event, a whole answer says why."""

    async def act(asked: Asked) -> web.StreamResponse:
        if asked.body.get("stream"):
            return await raw([], cut=True)(asked)
        return web.json_response({"error": {"message": message, "code": "context_length_exceeded"}}, status=400)

    return act


async def embed(asked: Asked) -> web.StreamResponse:
    """An embedding for each text: its length first, then zeros. They come in reverse order, which `index` allows."""
    texts = asked.body["input"]
    vectors = [
        {"index": at, "embedding": [float(len(text)), *[0.0] * (EMBEDDING_SIZE - 1)]} for at, text in enumerate(texts)
    ]
    usage = {"prompt_tokens": sum(len(text.split()) for text in texts)}
    return web.json_response({"object": "list", "data": vectors[::-1], "usage": usage})


def once_set(event: threading.Event, then: Act) -> Act:
    """Answer nothing until the event is set."""

    async def act(asked: Asked) -> web.StreamResponse:
        while not event.is_set():
            await asyncio.sleep(0.02)
        return await then(asked)

    return act


def by_text(acts: Mapping[str, Act], otherwise: Act) -> Act:
    """Do what belongs to the request's text."""

    async def act(asked: Asked) -> web.StreamResponse:
        return await acts.get(asked.text, otherwise)(asked)

    return act
