"""Waits for the schemas of records while the registry can't be reached."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from typing import TYPE_CHECKING, Final, TypeVar

from millstream.consumers.resilience.retry import BACK_OFF
from millstream.schemas.errors import SchemaUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)

T = TypeVar("T")

LOG_INTERVAL: Final = 60.0  # seconds


async def with_schemas(
    work: Callable[[], T],
    what: str,
    retried: Callable[[], object],
    *,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> T:
    """The result of `work`. It runs in a thread, as it may call the registry, and is retried while the registry can't be reached.

    Args:
        work: decodes records.
        what: names the records that wait, for the log.
        retried: called before each wait.
        sleep: waits for a number of seconds.
        clock: returns seconds.
    """
    wait, longest = BACK_OFF
    since, logged = None, None
    while True:
        try:
            result = await asyncio.to_thread(work)
        except SchemaUnavailable as error:
            now = clock()
            since = now if since is None else since
            if logged is None or now - logged >= LOG_INTERVAL:
                logged = now
                log.warning("%s have waited for a schema for %.0f s: %s", what, now - since, error)
            retried()
            await sleep(random.uniform(wait / 2, wait))  # jitter, so that processes don't ask at the same moment
            wait = min(wait * 2, longest)
        else:
            if since is not None:
                log.warning("%s got their schemas after %.0f s", what, clock() - since)
            return result
