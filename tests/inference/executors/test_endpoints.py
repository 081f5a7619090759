"""Which of several servers gets a request."""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from millstream.inference.errors import (
    ExecutorUnavailable,
    ModelConfigError,
    ModelRejected,
    NotSent,
    Throttled,
    TimedOut,
)
from millstream.inference.executors import endpoints as module
from millstream.inference.executors.endpoints import Endpoints

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping


@dataclass(frozen=True)
class Server:
    """A server of which only the name counts."""

    url: str


A, B, C = (Server(name) for name in "abc")
AWAY = ExecutorUnavailable("away")


@pytest.fixture(autouse=True)
def quick_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSES", (0.001, 0.01))


def run(body: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(body(), 20))


def raising(errors: Mapping[Server, Exception]) -> Callable[[Server, float], Awaitable[str]]:
    """Raises the server's error, or answers with its name."""

    async def send(server: Server, _left: float) -> str:
        if server in errors:
            raise errors[server]
        return server.url

    return send


def failing(*servers: Server) -> Callable[[Server, float], Awaitable[str]]:
    return raising(dict.fromkeys(servers, AWAY))


async def never(_server: Server) -> None:
    raise ExecutorUnavailable("not ready")


async def always(_server: Server) -> None: ...


async def ask(servers: Endpoints[Server], send: Callable[[Server, float], Awaitable[str]] | None = None) -> str:
    return await servers.call(send or failing(), 30.0, 30.0)


async def until(reached: Callable[[], Awaitable[bool]]) -> None:
    while not await reached():
        await asyncio.sleep(0.001)


def test_server_with_the_fewest_requests_is_next() -> None:
    async def body() -> None:
        servers, go = Endpoints([A, B], never), asyncio.Event()
        asked: list[str] = []

        async def held(server: Server, _left: float) -> str:
            asked.append(server.url)
            await go.wait()
            return server.url

        requests = [asyncio.create_task(ask(servers, held)) for _ in range(4)]
        await until(lambda: _true(len(asked) == 4))
        assert sorted(asked) == ["a", "a", "b", "b"]
        go.set()
        await asyncio.gather(*requests)

    run(body)


async def _true(fact: bool) -> bool:
    return fact


def test_request_goes_to_the_next_server_if_one_is_away() -> None:
    async def body() -> None:
        servers = Endpoints([A, B], never)
        assert await ask(servers, failing(A)) == "b"
        assert await ask(servers) == "b"
        await servers.stop()

    run(body)


def test_server_gets_requests_again_once_it_passes_the_check() -> None:
    ready = False

    async def check(_server: Server) -> None:
        if not ready:
            raise ExecutorUnavailable("not ready")

    async def body() -> None:
        nonlocal ready
        servers = Endpoints([A, B], check)
        assert await ask(servers, failing(A)) == "b"
        await asyncio.sleep(0.02)
        assert await ask(servers) == "b"
        ready = True
        await until(lambda: _is(ask(servers), "a"))

    run(body)


async def _is(answer: Coroutine[Any, Any, str], expected: str) -> bool:
    try:
        return await answer == expected
    except ExecutorUnavailable:
        return False


def test_answer_to_a_request_that_was_sent_before_a_server_failed_does_not_make_it_work() -> None:
    async def body() -> None:
        servers, answer = Endpoints([A, B], never), asyncio.Event()

        async def slow(server: Server, _left: float) -> str:
            await answer.wait()
            return server.url

        before = asyncio.create_task(ask(servers, slow))
        await asyncio.sleep(0)
        other = asyncio.create_task(ask(servers, slow))  # to the other one
        third = asyncio.create_task(ask(servers, failing(A)))
        assert await third == "b"
        answer.set()
        assert (await before, await other) == ("a", "b")
        assert await ask(servers) == "b"
        await servers.stop()

    run(body)


def test_if_all_are_away_the_one_that_failed_first_is_asked() -> None:
    async def body() -> None:
        servers = Endpoints([A, B], never)
        with pytest.raises(ExecutorUnavailable):
            await ask(servers, failing(A, B))
        assert await ask(servers) == "a"
        assert await ask(servers) == "a", "the answer shows that it works"
        await servers.stop()

    run(body)


@pytest.mark.parametrize("error", [ModelRejected("bad"), Throttled("busy")])
def test_server_that_refuses_a_request_is_not_away(error: Exception) -> None:
    async def body() -> None:
        servers = Endpoints([A, B], never)
        with pytest.raises(type(error)):
            await ask(servers, raising({A: error}))
        assert await ask(servers) == "a"

    run(body)


def test_rejection_that_no_server_saw_does_not_make_one_work() -> None:
    async def body() -> None:
        servers = Endpoints([A, B], never)
        with pytest.raises(ExecutorUnavailable):
            await ask(servers, failing(A, B))
        with pytest.raises(NotSent):
            await ask(servers, raising({A: NotSent("too long")}))
        with pytest.raises(ExecutorUnavailable):
            await ask(servers, failing(A))
        assert await ask(servers) == "b", "b has been away for longer by now"
        await servers.stop()

    run(body)


def test_time_that_a_short_deadline_left_does_not_eject_a_server() -> None:
    late = {A: TimedOut("late"), B: TimedOut("late")}

    async def body() -> None:
        servers = Endpoints([A, B], never)
        with pytest.raises(TimedOut):
            await servers.call(raising(late), 0.05, 30.0)
        assert await ask(servers) == "a"
        assert await ask(servers, raising({A: TimedOut("hangs")})) == "b", "it had all the time that a request may take"
        assert await ask(servers) == "b"
        await servers.stop()

    run(body)


def test_all_servers_together_get_the_time_of_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    lefts: list[float] = []
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))

    async def slowly_away(_server: Server, left: float) -> str:
        nonlocal now
        lefts.append(left)
        now += 3.0
        raise AWAY

    async def body() -> None:
        servers = Endpoints([A, B, C], never)
        with pytest.raises(ExecutorUnavailable):
            await servers.call(slowly_away, 5.0, 5.0)
        await servers.stop()

    run(body)
    assert lefts == [5.0, 2.0], "none is left for the third server"


def test_start_checks_all_servers_and_one_that_is_away_gets_no_request_before_it_passes() -> None:
    away, checked = {B}, []
    servers = Endpoints([A], always)

    async def check(server: Server) -> None:
        checked.append(server)
        assert await ask(servers) == server.url, "requests of a check go to its server"
        if server in away:
            raise AWAY

    async def body() -> None:
        nonlocal servers
        servers = Endpoints([A, B], check)
        await servers.start()
        assert set(checked) == {A, B}
        for _ in range(3):
            with pytest.raises(ExecutorUnavailable):
                await ask(servers, failing(A, B))
            assert await ask(servers) == "a", "b never passed, so it isn't tried even if all are away"
        away.clear()
        await until(lambda: _is(ask(servers, failing(A)), "b"))
        await servers.stop()

    run(body)


def test_start_fails_if_no_server_passes_or_one_does_not_fit() -> None:
    async def unfit(server: Server) -> None:
        raise ModelConfigError("other inputs") if server == B else AWAY

    async def body() -> None:
        with pytest.raises(ExecutorUnavailable, match="not ready"):
            await Endpoints([A, B], never).start()
        with pytest.raises(ModelConfigError, match="other inputs"):
            await Endpoints([A, B], unfit).start()

    run(body)


def test_server_that_comes_back_with_another_model_gets_no_requests_and_the_log_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    checks = 0

    async def unfit(_server: Server) -> None:
        nonlocal checks
        checks += 1
        raise ModelConfigError("other inputs")

    async def body() -> None:
        servers = Endpoints([A, B], unfit)
        assert await ask(servers, failing(A)) == "b"
        await until(lambda: _true(checks >= 3))
        assert await ask(servers) == "b"
        await servers.stop()

    run(body)
    assert [record.message for record in caplog.records if record.levelno == logging.ERROR] == [
        "a gets no requests: ModelConfigError: other inputs"
    ]


def test_server_that_fails_again_and_again_is_checked_once_at_a_time() -> None:
    checked: list[Server] = []

    async def check(server: Server) -> None:
        checked.append(server)
        await asyncio.Event().wait()

    async def body() -> None:
        servers = Endpoints([A, B], check)
        for _ in range(5):
            with pytest.raises(ExecutorUnavailable):
                await ask(servers, failing(A, B))
            await ask(servers)
        with pytest.raises(ExecutorUnavailable):
            await ask(servers, failing(A, B))
        await until(lambda: _true(len(checked) >= 2))
        await asyncio.sleep(0.02)
        await servers.stop()

    run(body)
    assert sorted(checked, key=lambda server: server.url) == [A, B]


def test_pauses_between_checks_grow_until_a_request_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    real = asyncio.sleep

    async def noted(seconds: float) -> None:
        pauses.append(seconds)
        await real(0)

    async def body() -> None:
        servers = Endpoints([A, B], never)
        monkeypatch.setattr(asyncio, "sleep", noted)
        assert await ask(servers, failing(A)) == "b"
        while len(pauses) < 8:
            await real(0)
        await servers.stop()

    monkeypatch.setattr(module, "PAUSES", (1.0, 10.0))
    monkeypatch.setattr(random, "uniform", lambda _low, high: high)
    run(body)
    assert pauses[:8] == [1, 2, 4, 8, 10, 10, 10, 10]
