"""Chooses one of several servers that have the same model. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

EJECTED = (1.0, 30.0)  # seconds without requests after a server's first failure in a row, and at most


@dataclass(slots=True)
class Endpoint:
    """One server."""

    url: str
    in_flight: int = 0  # requests
    failures: int = 0  # in a row
    ejected_until: float = 0.0  # seconds on the monotonic clock


class Endpoints:
    """The servers. One that fails gets no requests for a while. If all fail, the one whose wait ends first is tried."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._all = [Endpoint(url) for url in urls]

    def take(self, now: float) -> Endpoint:
        """The server that works and has the fewest requests in flight. Call `succeeded` or `failed`, and always `release`."""
        working = [one for one in self._all if one.ejected_until <= now]
        one = (
            min(working, key=lambda each: each.in_flight)
            if working
            else min(self._all, key=lambda each: each.ejected_until)
        )
        one.in_flight += 1
        return one

    def any_works(self, now: float) -> bool:
        """Whether a server has not failed lately."""
        return any(one.ejected_until <= now for one in self._all)

    def release(self, one: Endpoint) -> None:
        """Note that a request has ended, however."""
        one.in_flight -= 1

    def succeeded(self, one: Endpoint) -> None:
        """Note that the server answers."""
        one.failures, one.ejected_until = 0, 0.0

    def failed(self, one: Endpoint, now: float) -> None:
        """Note that the server can't answer. Requests that were in flight together count as one failure."""
        if one.ejected_until > now:
            return
        first, longest = EJECTED
        one.ejected_until = now + min(first * 2**one.failures, longest)
        one.failures += 1
