"""Retries requests to a server. While the server is away, one request at a time tries whether it is back, and all others wait."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from millstream.consumers.observability.metrics import RETRIES
from millstream.consumers.record_types import Position
from millstream.consumers.resilience.outage import Outage, Outages
from millstream.consumers.resilience.retry import BACK_OFF
from millstream.inference.errors import Throttled
from millstream.schemas.failures import failure_of

log = logging.getLogger(__name__)
T = TypeVar("T")

WHAT = "executor"  # in the log, the health and the metrics
# A server under load refuses some requests all the time. So this is an outage only if a request is refused for so many seconds.
THROTTLED_SECONDS = 10.0
LOG_INTERVAL = 60.0  # seconds between two lines about refusals of a server that has too much to do
MOST_RETRY_AFTER = 300.0  # seconds that are waited at most because the server said so


class CircuitBreaker:
    """Sends requests until they are answered. Coroutines on one event loop call it.

    After a failure, the circuit is open: no request is sent but one at a time, the probe, after a pause that doubles up to 10 s.
    The probes take turns, so a request that always fails doesn't hold up the others. An answer to any request closes the circuit,
    but a batch that needs no request any more does not: it says nothing about the server.
    A request that fails while others are answered is retried alone, after pauses of its own.
    While the circuit `is_calm`, requests may be sent without `call`; those that fail come to it then.
    """

    def __init__(self, outages: Outages) -> None:
        self._outages = outages
        self._closed = asyncio.Event()
        self._closed.set()
        self._probing = asyncio.Lock()  # it is fair: who waits longest is next
        self._failures = 0  # since the circuit was closed: the one that opened it, and failed probes
        self._not_before = 0.0  # when the server wants the next request, on the loop's clock
        self._failing: dict[int, Position] = {}  # number of each batch whose last try failed -> its first event
        self._outage: Outage | None = None  # None: nothing is reported
        self._throttled = 0  # requests that were refused since the log last said so
        self._logged = float("-inf")  # when that was, on the loop's clock

    def is_calm(self) -> bool:
        """Whether the circuit is closed, and the server has not asked for a pause."""
        return self._closed.is_set() and (not self._not_before or self._not_before <= _now())

    async def call(
        self,
        number: int,
        send: Callable[[], Awaitable[T]],
        failed: Exception | None,
        *,
        is_over: Callable[[], bool],
        position: Callable[[], Position],
    ) -> T:
        """Return what `send` returns, after as many tries as it needs.

        Args:
            number: of the batch, in the order of submission.
            send: sends the request, and calls `answered` after an answer.
            failed: why the first try failed, which was sent without this method; None: there was none.
            is_over: whether `send` would send nothing any more. Then it is called without a pause before it.
            position: returns the batch's first event, for reports.

        Raises:
            Exception: an error of `send` that a retry would not help.
        """
        tries, since = 0, _now()
        try:
            if failed is not None:
                tries = 1
                self._note_failure(number, failed, position, tries=1, probe=False, lasting=False)
                await asyncio.sleep(back_off(tries))
            while True:
                probe = not self._closed.is_set()
                try:
                    if probe:
                        async with self._probing:
                            if not is_over() and not await self._is_still_open():
                                continue
                            return await send()
                    await self._pause_if_asked()
                    return await send()
                except Exception as error:
                    if failure_of(error) != "wait":
                        raise
                    tries += 1
                    lasting = (
                        _now() - since >= THROTTLED_SECONDS if isinstance(error, Throttled) else probe or tries > 1
                    )
                    self._note_failure(number, error, position, tries=tries, probe=probe, lasting=lasting)
                if not probe:
                    await asyncio.sleep(back_off(tries))
        finally:
            self._forget(number)

    def answered(self) -> None:
        """Note that the server answered: the circuit is closed."""
        self._failures = 0
        self._closed.set()

    def _note_failure(
        self,
        number: int,
        error: Exception,
        position: Callable[[], Position],
        *,
        tries: int,
        probe: bool,
        lasting: bool,
    ) -> None:
        """Open the circuit, unless the server only has too much to do; and report."""
        if isinstance(error, Throttled) and error.retry_after is not None:
            self._not_before = max(self._not_before, _now() + min(error.retry_after, MOST_RETRY_AFTER))
        if isinstance(error, Throttled):
            self._log_refusal(error)
        if probe:
            self._failures += 1
        elif not isinstance(error, Throttled) and self._closed.is_set():
            self._closed.clear()
            self._failures = 1
        self._report(number, error, position, tries=tries, lasting=lasting)

    def _log_refusal(self, error: Throttled) -> None:
        """Say from time to time that the server refuses requests. It may do so all the time under load."""
        self._throttled += 1
        if _now() - self._logged >= LOG_INTERVAL:
            log.warning(
                "the server has too much to do: it refused %d requests since the last such line. They are sent again: %s",
                self._throttled,
                error,
            )
            self._throttled, self._logged = 0, _now()

    async def _pause_if_asked(self) -> None:
        """Wait until the server wants the next request."""
        while (wait := self._not_before - _now()) > 0:
            await asyncio.sleep(wait + random.uniform(0, min(wait, 1.0)))  # so that not all are sent at the same moment

    async def _is_still_open(self) -> bool:
        """Wait before the next probe. Returns False if another request was answered meanwhile."""
        pause = max(back_off(self._failures), self._not_before - _now())
        try:
            async with asyncio.timeout(pause):
                await self._closed.wait()
        except TimeoutError:
            return True
        return False

    def _report(
        self, number: int, error: Exception, position: Callable[[], Position], *, tries: int, lasting: bool
    ) -> None:
        """Report an outage. A first failure is none: a single connection may be lost."""
        if number not in self._failing:
            self._failing[number] = position()
        if self._outage is None and lasting:
            self._outage = self._outages.begin(WHAT)
        if self._outage is None:
            self._outages.metrics.count(RETRIES, 1, WHAT)
            return
        self._outage.note(error, _longest_pause(max(self._failures, tries)), self._failing[min(self._failing)])

    def _forget(self, number: int) -> None:
        """Note that a batch doesn't wait any more. End the report if no other one does."""
        self._failing.pop(number, None)
        if self._outage is not None and not self._failing:
            self._outage.end(works=self._closed.is_set())
            self._outage = None


def _longest_pause(tries: int) -> float:
    first, longest = BACK_OFF
    return float(min(first * 2.0 ** min(tries - 1, 60), longest))


def back_off(tries: int) -> float:
    """Seconds until the next try, after so many that failed (full jitter: anything up to the longest pause)."""
    return random.uniform(0, _longest_pause(max(tries, 1)))


def _now() -> float:
    return asyncio.get_running_loop().time()
