"""Chooses the server for each request among several that have the same model: the one with the fewest requests in flight."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from millstream.inference.errors import ExecutorUnavailable, InferenceError, NotSent, Throttled, TimedOut
from millstream.inference.executors.error_classification import line_of

log = logging.getLogger(__name__)

PAUSES = (1.0, 10.0)  # seconds until a server that failed is checked for the first time, and at most


class Server(Protocol):
    """A connection to one server."""

    @property
    def url(self) -> str:
        """For messages."""


S = TypeVar("S", bound=Server)
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Member(Generic[S]):
    server: S
    in_flight: int = 0
    failed_at: float | None = None  # on the monotonic clock; None: it works
    failures: int = 0  # since the last request that it answered
    admitted: bool = False  # whether it passed a check
    watch: asyncio.Task[None] | None = None  # checks it from time to time; None: it never failed beside others


class Endpoints(Generic[S]):
    """The servers. Coroutines on one event loop call it.

    A server that fails gets no more requests, and the request goes to another one. Then the server is checked from time to time,
    and gets requests again once it passes. If all servers failed, the one that failed first gets the next request, for a request
    that is answered shows that a server works. A server that never passed a check gets no request.
    """

    def __init__(self, servers: Sequence[S], check: Callable[[S], Awaitable[object]]) -> None:
        """Args:
        servers: at least one.
        check: returns if the server is ready for requests. It raises ExecutorUnavailable if it isn't. What it sends with
            `call` goes to this server.
        """
        self._members = [_Member(server) for server in servers]
        self._check = check
        self._pinned: ContextVar[_Member[S] | None] = ContextVar("pinned", default=None)

    async def start(self) -> None:
        """Check all servers at the same time. At least one must pass; the others may come later.

        Raises:
            ExecutorUnavailable: no server passed.
            Exception: another error of a check, such as ModelConfigError.
        """
        errors = await asyncio.gather(*map(self._checked, self._members), return_exceptions=True)
        for error in errors:
            if error is not None and not isinstance(error, ExecutorUnavailable):
                raise error
        away = [
            (each, error)
            for each, error in zip(self._members, errors, strict=True)
            if isinstance(error, ExecutorUnavailable)
        ]
        if len(away) == len(self._members):
            raise away[0][1]
        for member, error in away:
            self._eject(member, error)

    async def call(self, send: Callable[[S, float], Awaitable[T]], timeout: float, usual: float) -> T:
        """Send a request to a server, and to the next one if it is away.

        Args:
            send: sends the request to this server, and waits up to so many seconds.
            timeout: seconds for all servers together.
            usual: seconds that a request may take. With less, a server that doesn't answer in time is not taken to be away.

        Raises:
            ExecutorUnavailable: all servers that worked are away by now.
            InferenceError: what `send` raises.
        """
        if (pinned := self._pinned.get()) is not None:
            return await send(pinned.server, timeout)
        began = sent = time.monotonic()
        tried: list[_Member[S]] = []
        while True:
            member = self._chosen(tried)
            member.in_flight += 1
            left = timeout - (sent - began)
            try:
                answer = await send(member.server, left)
            except InferenceError as error:
                if isinstance(error, Throttled) or not isinstance(error, ExecutorUnavailable):
                    if not isinstance(error, NotSent):
                        self._note_answer(member, sent)
                    raise
                if isinstance(error, TimedOut) and left < usual:
                    raise
                self._eject(member, error)
                tried.append(member)
                sent = time.monotonic()
                if sent - began >= timeout or not self._works_beside(tried):
                    raise
            else:
                self._note_answer(member, sent)
                return answer
            finally:
                member.in_flight -= 1

    async def stop(self) -> None:
        """End the checks."""
        for member in self._members:
            if member.watch is not None:
                member.watch.cancel()

    def _chosen(self, tried: Sequence[_Member[S]]) -> _Member[S]:
        """The one that works and has the fewest requests; if none works, the one that failed first."""
        if len(self._members) == 1:
            return self._members[0]
        left = [member for member in self._members if member not in tried]
        working = [member for member in left if member.failed_at is None]
        if working:
            return min(working, key=lambda member: member.in_flight)
        return min(left, key=lambda member: (not member.admitted, member.failed_at or 0.0))

    def _works_beside(self, tried: Sequence[_Member[S]]) -> bool:
        return any(member.failed_at is None and member not in tried for member in self._members)

    def _note_answer(self, member: _Member[S], sent: float) -> None:
        """Note that a server answers. An answer to a request from before it failed says nothing of it now."""
        if member.failed_at is None:
            member.failures = 0
        elif member.failed_at <= sent:
            member.failures = 0
            self._welcome(member)

    def _eject(self, member: _Member[S], error: Exception) -> None:
        was_working, member.failed_at = member.failed_at is None, time.monotonic()
        if not was_working or len(self._members) == 1:
            return
        member.failures += 1
        log.warning("%s gets no more requests until it works again: %s", member.server.url, error)
        if member.watch is None or member.watch.done():  # one that still sleeps goes on
            member.watch = asyncio.get_running_loop().create_task(self._watch(member))

    @staticmethod
    def _is_away(member: _Member[S]) -> bool:
        return member.failed_at is not None

    def _welcome(self, member: _Member[S]) -> None:
        member.failed_at = None
        if len(self._members) > 1:
            log.info("%s works again", member.server.url)

    async def _checked(self, member: _Member[S]) -> None:
        self._pinned.set(member)  # only for this task
        await self._check(member.server)
        member.admitted = True

    async def _watch(self, member: _Member[S]) -> None:
        """Check a server from time to time until it works."""
        said = ""
        while self._is_away(member):
            first, longest = PAUSES
            await asyncio.sleep(min(first * 2.0 ** min(member.failures - 1, 30), longest) * random.uniform(0.5, 1.0))
            if not self._is_away(member):  # a request was answered meanwhile
                return
            try:
                await self._checked(member)
            except Exception as error:
                member.failures += 1
                if (
                    not isinstance(error, ExecutorUnavailable) and str(error) != said
                ):  # it won't pass without an operator
                    said = str(error)
                    log.error("%s gets no requests: %s: %s", member.server.url, type(error).__name__, line_of(error))
            else:
                if self._is_away(member):
                    self._welcome(member)
