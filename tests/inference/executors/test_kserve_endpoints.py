"""Which of several servers gets a request."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pytest

from millstream.inference.errors import ExecutorUnavailable
from millstream.inference.executors.kserve import endpoints as module
from millstream.inference.executors.kserve.endpoints import Endpoints

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from millstream.inference.executors.kserve.endpoint import Endpoint


@dataclass(frozen=True)
class Server:
    """A server of which only the name counts."""

    url: str

    async def close(self) -> None: ...


A, B = (cast("Endpoint", Server(name)) for name in "ab")


def failing(*servers: Endpoint) -> Callable[[Endpoint], Awaitable[str]]:
    async def send(endpoint: Endpoint) -> str:
        if endpoint in servers:
            raise ExecutorUnavailable("away")
        return endpoint.url

    return send


async def never_ready(_endpoint: Endpoint) -> bool:
    return False


def test_request_goes_to_the_next_server_if_one_is_away() -> None:
    async def run() -> list[str]:
        servers = Endpoints([A, B], never_ready)
        found = [await servers.call(failing(A)), await servers.call(failing())]
        await servers.close()
        return found

    assert asyncio.run(run()) == ["b", "b"]


def test_answer_to_a_request_that_was_sent_before_a_server_failed_does_not_make_it_healthy() -> None:
    async def run() -> str:
        servers, answer = Endpoints([A, B], never_ready), asyncio.Event()

        async def slow(endpoint: Endpoint) -> str:
            await answer.wait()
            return endpoint.url

        before = asyncio.create_task(servers.call(slow))
        await asyncio.sleep(0)
        servers.eject(A, ExecutorUnavailable("away"))
        answer.set()
        assert await before == "a"
        found = await servers.call(failing())
        await servers.close()
        return found

    assert asyncio.run(run()) == "b"


def test_server_that_fails_again_and_again_is_looked_at_once_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEALTH_INTERVAL", 0.001)
    asked: list[Any] = []

    async def is_ready(endpoint: Endpoint) -> bool:
        asked.append(endpoint)
        await asyncio.Event().wait()
        return True

    async def run() -> None:
        both = Endpoints([A, B], is_ready)
        for _ in range(5):
            both.eject(A, ExecutorUnavailable("away"))
            both.eject(B, ExecutorUnavailable("away"))
            assert await both.call(failing()) == "a"  # all are away, so the one that failed first is tried
            assert await both.call(failing()) == "a"
        both.eject(A, ExecutorUnavailable("away"))
        while len(asked) < 2:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        await both.close()

    asyncio.run(run())
    assert sorted(asked, key=lambda server: server.url) == [A, B]
