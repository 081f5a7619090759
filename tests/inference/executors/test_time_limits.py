"""Time limits that share one timer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from millstream.inference.executors.time_limits import TimeLimits

if TYPE_CHECKING:
    from collections.abc import Coroutine


async def wait(limits: TimeLimits, limit: float, seconds: float) -> str:
    with limits.of(limit):
        await asyncio.sleep(seconds)
    return "in time"


def gathered(*coroutines: Coroutine[object, object, str]) -> list[object]:
    async def body() -> list[object]:
        return list(await asyncio.gather(*coroutines, return_exceptions=True))

    return asyncio.run(body())


def test_only_what_takes_longer_ends_whatever_the_order_of_the_limits() -> None:
    limits = TimeLimits()
    ends = ((60, 0), (0.01, 60), (60, 0.05), (0.03, 60), (0.02, 60))
    found = gathered(*(wait(limits, limit, seconds) for limit, seconds in ends))
    assert [type(each) if isinstance(each, Exception) else each for each in found] == [
        "in time",
        TimeoutError,
        "in time",
        TimeoutError,
        TimeoutError,
    ]
    assert not limits.running


def test_limit_that_begins_after_all_others_ended_holds() -> None:
    async def body() -> None:
        limits = TimeLimits()
        assert await wait(limits, 0.02, 0) == "in time"
        await asyncio.sleep(0.03)  # the timer has passed, and nothing runs
        with pytest.raises(TimeoutError):
            await wait(limits, 0.01, 60)

    asyncio.run(body())


def test_task_that_is_cancelled_from_outside_is_cancelled() -> None:
    async def body() -> None:
        limits = TimeLimits()
        task = asyncio.create_task(wait(limits, 60, 60))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not limits.running

    asyncio.run(body())


def test_task_goes_on_after_its_limit() -> None:
    async def body() -> str:
        limits = TimeLimits()
        with pytest.raises(TimeoutError):
            await wait(limits, 0.01, 60)
        task = asyncio.current_task()
        assert task is not None
        assert not task.cancelling()
        return await wait(limits, 60, 0.01)

    assert asyncio.run(body()) == "in time"
