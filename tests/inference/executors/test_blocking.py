"""An asynchronous executor for callers that wait for each result."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from millstream.inference.errors import ExecutorUnavailable, ModelConfigError, ModelRejected, Throttled
from millstream.inference.executors import blocking
from millstream.inference.executors.blocking import BlockingExecutor
from millstream.inference.executors.interface import AsyncExecutor
from millstream.inference.executors.limits import RequestLimits
from millstream.inference.executors.loop_thread import LoopThread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.inference.executors.interface import Tensors


class Doubling(AsyncExecutor):
    """Doubles `x`. Raises `error`, if there is one, hangs, or forgets an event."""

    max_events = 8
    limits = RequestLimits(timeout=0.05)

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.hangs = self.closed = self.forgets = False
        self.threads: set[threading.Thread] = set()

    async def warm_up(self) -> None:
        await self.run({"x": np.zeros((1, 1))}, 1)

    async def run(self, inputs: Tensors, timeout: float) -> dict[str, Any]:  # noqa: ARG002
        self.threads.add(threading.current_thread())
        if self.hangs:
            await asyncio.sleep(60)
        if self.error is not None:
            raise self.error
        return {"y": 2 * inputs["x"][1:] if self.forgets else 2 * inputs["x"]}

    async def close(self) -> None:
        self.closed = True


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch) -> Iterator[BlockingExecutor]:
    monkeypatch.setattr(blocking, "GRACE", 0.05)
    made = BlockingExecutor(Doubling())
    yield made
    made.close()


def own(executor: BlockingExecutor) -> Doubling:
    assert isinstance(executor.executor, Doubling)
    return executor.executor


def test_all_runs_are_on_one_thread_that_is_not_the_callers(executor: BlockingExecutor) -> None:
    executor.warm_up()
    assert executor.run({"x": np.ones((2, 1))})["y"].tolist() == [[2], [2]]
    assert len(own(executor).threads) == 1
    assert threading.current_thread() not in own(executor).threads


def test_run_that_hangs_is_an_outage_and_the_next_one_runs(executor: BlockingExecutor) -> None:
    own(executor).hangs = True
    with pytest.raises(ExecutorUnavailable, match=r"no answer within 0\.05 s"):
        executor.run({"x": np.ones((1, 1))})
    own(executor).hangs = False
    assert executor.run({"x": np.ones((1, 1))})["y"].tolist() == [[2]]


@pytest.mark.parametrize(
    "error", [ModelRejected("bad"), Throttled("later", 3.0), ModelConfigError("wrong"), KeyError("bug")]
)
def test_errors_reach_the_caller(executor: BlockingExecutor, error: Exception) -> None:
    own(executor).error = error
    with pytest.raises(type(error)) as raised:
        executor.run({"x": np.ones((1, 1))})
    assert raised.value is error


def test_time_limit_of_a_library_is_an_outage(executor: BlockingExecutor) -> None:
    own(executor).error = TimeoutError("the socket timed out")
    with pytest.raises(ExecutorUnavailable, match="the socket timed out"):
        executor.run({"x": np.ones((1, 1))})
    with pytest.raises(ExecutorUnavailable, match="the warm-up did not end"):
        executor.warm_up()


def test_checks_run_after_the_warm_up(executor: BlockingExecutor) -> None:
    def check() -> None:
        raise ModelConfigError("it does not fit")

    executor.checks.append(check)
    with pytest.raises(ModelConfigError, match="it does not fit"):
        executor.warm_up()


def test_close_ends_the_thread_and_what_runs_on_it() -> None:
    executor = BlockingExecutor(Doubling())
    future = executor.thread.submit(asyncio.sleep(60))
    executor.close()
    assert own(executor).closed
    assert future.cancelled()
    assert not any(thread.name == "remote-executor" and thread.is_alive() for thread in own(executor).threads)


def test_loop_that_is_blocked_does_not_hold_up_its_end() -> None:
    thread, free = LoopThread("blocked"), threading.Event()
    thread.loop.call_soon_threadsafe(free.wait)
    thread.close()  # returns after a second
    free.set()


def test_executor_that_returns_too_few_rows_is_told_by_its_name(executor: BlockingExecutor) -> None:
    own(executor).forgets = True
    expected = r"executor Doubling: output `y` has shape \[2, 1\] for 3 events"
    with pytest.raises(ModelConfigError, match=expected):
        executor.run({"x": np.zeros((3, 1))})
