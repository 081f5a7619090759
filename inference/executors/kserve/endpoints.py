"""Chooses the server for each request among several: the healthy one with the fewest requests in flight."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from millstream.inference.errors import ExecutorUnavailable, Throttled
from millstream.inference.executors.kserve.endpoint import Endpoint

log = logging.getLogger(__name__)

HEALTH_INTERVAL = 1.0  # seconds between two looks at a server that failed
HEALTH_TIMEOUT = 2.0  # seconds

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Member:
    endpoint: Endpoint
    in_flight: int = 0
    failed_at: float | None = None  # on the loop's clock; None: it is healthy
    watch: asyncio.Task[None] | None = None  # looks whether it is back; None: it never failed beside others


class Endpoints:
    """The servers. Coroutines on one event loop call it.

    A server that doesn't answer gets no more requests while another one is healthy. A task looks whether it is back.
    """

    def __init__(self, endpoints: Sequence[Endpoint], is_ready: Callable[[Endpoint], Awaitable[bool]]) -> None:
        """Args:
        endpoints: at least one.
        is_ready: returns whether a server has the model; raises ExecutorUnavailable if it doesn't answer.
        """
        self._members = [_Member(endpoint) for endpoint in endpoints]
        self._is_ready = is_ready

    async def call(self, send: Callable[[Endpoint], Awaitable[T]]) -> T:
        """Send a request to a server, and to the next one if it is away.

        Raises:
            ExecutorUnavailable: all servers that were healthy are away by now.
            InferenceError: what `send` raises.
        """
        tried: list[_Member] = []
        while True:
            member = self._chosen(tried)
            member.in_flight += 1
            sent = asyncio.get_running_loop().time()
            try:
                answer = await send(member.endpoint)
            except Throttled:
                raise
            except ExecutorUnavailable as error:
                self._eject(member, error)
                tried.append(member)
                if not any(other.failed_at is None for other in self._members if other not in tried):
                    raise
            else:
                if member.failed_at is not None and member.failed_at <= sent:  # an older request says nothing of it now
                    self._welcome(member)
                return answer
            finally:
                member.in_flight -= 1

    def eject(self, endpoint: Endpoint, error: Exception) -> None:
        """Send no more requests to this server until it has the model."""
        self._eject(next(member for member in self._members if member.endpoint is endpoint), error)

    async def close(self) -> None:
        """Close all connections."""
        for member in self._members:
            if member.watch is not None:
                member.watch.cancel()
        await asyncio.gather(*(member.endpoint.close() for member in self._members), return_exceptions=True)

    def _chosen(self, tried: Sequence[_Member]) -> _Member:
        """The healthy one with the fewest requests; if none is healthy, the one that failed first."""
        left = [member for member in self._members if member not in tried]
        healthy = [member for member in left if member.failed_at is None]
        return min(healthy, key=lambda m: m.in_flight) if healthy else min(left, key=lambda m: m.failed_at or 0.0)

    def _eject(self, member: _Member, error: Exception) -> None:
        was_healthy, member.failed_at = member.failed_at is None, asyncio.get_running_loop().time()
        if was_healthy and len(self._members) > 1:
            log.warning("%s gets no more requests until it works again: %s", member.endpoint.url, error)
            if member.watch is None or member.watch.done():  # one that still sleeps goes on
                member.watch = asyncio.get_running_loop().create_task(self._watch(member))

    def _welcome(self, member: _Member) -> None:
        member.failed_at = None
        if len(self._members) > 1:
            log.warning("%s works again", member.endpoint.url)

    async def _watch(self, member: _Member) -> None:
        """Look from time to time whether a server is back."""
        while member.failed_at is not None:
            await asyncio.sleep(HEALTH_INTERVAL)
            try:
                ready = await self._is_ready(member.endpoint)
            except ExecutorUnavailable:
                ready = False
            if ready and member.failed_at is not None:  # no request was answered meanwhile
                self._welcome(member)
