"""Waiting for schemas: with a back-off, and few lines in the log."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from millstream.consumers.comparison.schema_wait import with_schemas
from millstream.consumers.resilience.retry import BACK_OFF
from millstream.schemas.errors import SchemaUnavailable

if TYPE_CHECKING:
    import pytest


def wait_through(failures: int) -> tuple[str, list[float], int]:
    """The result after so many failures, the waits in seconds, and how many retries were counted."""
    waits: list[float] = []
    retried: list[None] = []
    left = iter(range(failures))

    def work() -> str:
        if next(left, None) is not None:
            raise SchemaUnavailable("no registry")
        return "decoded"

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    result = asyncio.run(
        with_schemas(work, "records of t/1", lambda: retried.append(None), sleep=sleep, clock=lambda: sum(waits))
    )
    return result, waits, len(retried)


def test_waits_grow_up_to_a_bound_and_differ() -> None:
    result, waits, retried = wait_through(30)
    assert (result, retried) == ("decoded", 30)
    for number, wait in enumerate(waits):
        longest = min(BACK_OFF[0] * 2**number, BACK_OFF[1])
        assert longest / 2 <= wait <= longest
    assert len(set(waits)) > 20


def test_log_says_at_the_start_once_a_minute_and_at_the_end_what_waits(caplog: pytest.LogCaptureFixture) -> None:
    _, waits, _ = wait_through(60)
    first, *_, last = caplog.messages
    assert first == "records of t/1 have waited for a schema for 0 s: no registry"
    assert last == f"records of t/1 got their schemas after {sum(waits):.0f} s"
    assert 3 <= len(caplog.messages) <= sum(waits) / 60 + 2


def test_nothing_is_logged_where_nothing_waits(caplog: pytest.LogCaptureFixture) -> None:
    assert wait_through(0) == ("decoded", [], 0)
    assert caplog.messages == []
