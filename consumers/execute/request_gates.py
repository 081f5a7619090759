"""What a request to a server waits for before it is sent: a free place among those in flight, and the group's quota."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from types import TracebackType

from millstream.consumers.execute.concurrency_limit import ConcurrencyLimit
from millstream.consumers.execute.rate_limit import GroupQuota
from millstream.consumers.record_types import Partition

LOOK_INTERVAL = 0.25  # seconds between two looks at the worker's share, while a request waits for the quota

Share = Callable[[], tuple[Mapping[Partition, int], float]]
"""Returns the worker's partitions, an object that is another one after each rebalance, and its share of all, from 0 to 1."""


class RequestPlaces:
    """As many places as the limit has now. Coroutines on one event loop call it.

    Who has waited longest with `async with` gets the next free place. `try_take` takes one that nobody waits for.
    """

    def __init__(self, limit: ConcurrencyLimit) -> None:
        self.limit = limit
        self.taken = 0
        self.on_free: Callable[[], object] = lambda: None  # called if a place is free that nobody waits for
        self._waiting: deque[asyncio.Future[None]] = deque()  # who waits longest is first

    def has_room(self) -> bool:
        """Whether a place is free. Any thread may call it."""
        return self.taken < self.limit.size

    def try_take(self) -> bool:
        """Take a place if one is free, and say so."""
        if self._waiting or self.taken >= self.limit.size:
            return False
        self.taken += 1
        return True

    def may_stay(self) -> bool:
        """Whether who has a place may use it again: nobody waits for one, and the limit has not shrunk."""
        return not self._waiting and self.taken <= self.limit.size

    def free(self) -> None:
        """Give a place back."""
        self.taken -= 1
        while self._waiting and self.taken < self.limit.size:
            place = self._waiting.popleft()
            if not place.done():
                self.taken += 1
                place.set_result(None)
        if not self._waiting and self.taken < self.limit.size:
            self.on_free()

    async def __aenter__(self) -> None:
        if self.try_take():
            return
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():  # it got the place at the same moment
                self.free()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.free()


class QuotaGate:
    """Lets requests through as the quota of the group permits. Coroutines on one event loop call it."""

    def __init__(self, quota: GroupQuota, share: Share) -> None:
        """Args:
        quota: the quota.
        share: see `Share`.
        """
        self.is_set = bool(quota)  # whether there is a quota
        self._quota = quota
        self._share = share
        self._seen: object = None  # the partitions when the quota was looked at
        self._turn = asyncio.Lock()  # it is fair

    async def take(self, tokens: Callable[[], int], is_over: Callable[[], bool]) -> bool:
        """Wait until a request may be sent.

        Args:
            tokens: returns how many it will take.
            is_over: whether the request isn't needed any more. Then it takes nothing from the quota.

        Returns:
            whether it may be sent; otherwise it isn't needed any more.
        """
        needed = tokens()
        loop = asyncio.get_running_loop()
        async with self._turn:
            while not is_over():
                now = loop.time()
                partitions, share = self._share()
                self._quota.set_share(share, now, known=partitions is self._seen)
                self._seen = partitions
                wait = self._quota.take(needed, now)
                if wait <= 0:
                    return True
                await asyncio.sleep(min(wait, LOOK_INTERVAL))
        return False

    def correct(self, difference: int) -> None:
        """See `GroupQuota.correct_tokens`."""
        self._quota.correct_tokens(difference)
