"""Decides how many requests to a server may be in flight. Pure: times are arguments."""

from collections import deque

FIRST = 8  # requests at the start
MOST = 512  # requests that an adaptive limit may reach
# The mean latency over the lowest one, from which on the server is taken to be overloaded. It is more than 2, because a server
# that makes batches of the requests gets slower with more of them, and still answers more a second.
TOLERANCE = 4.0
SLACK = 0.005  # seconds that latencies may differ by in any case
DECREASE = 0.8  # factor when the server is overloaded
THROTTLED_DECREASE = 0.5  # factor when the server says so
ROUNDS_KEPT = 200  # rounds after which the lowest latency is measured anew
MEASURED = 3  # requests that are sent one at a time for that


class ConcurrencyLimit:
    """How many requests may be in flight: a fixed number, or one that follows the server.

    It begins with a few requests one at a time, to measure the lowest latency. Then it decides once a round, which is about as
    many answers as requests are in flight. If the mean latency of a round is close to the lowest one, and the limit was reached,
    the limit grows: it doubles until the server gets slower for the first time, and then grows by one. If the server gets slow
    or refuses requests, the limit shrinks by a factor, at most once a round (additive increase, multiplicative decrease, as in
    Chiu and Jain, 1989). The lowest latency is measured anew from time to time, because the server or the events may change.
    """

    def __init__(self, fixed: int | None = None) -> None:
        """Args:
        fixed: the limit; None: it adapts.
        """
        self._fixed = fixed
        self._size = float(fixed or FIRST)
        self._starting = True  # whether the limit doubles
        self._began = float("-inf")  # when the round began; requests that were sent before don't count
        self._latencies: deque[float] = deque()  # of the round
        self._reached = False  # whether the limit was reached in the round
        self._lowest = float("inf")  # mean latency of a request alone, or of a round, seconds
        self._rounds = 0  # since the lowest latency was measured
        self._measuring = fixed is None  # whether one request at a time is sent
        self.size = 1
        """Requests that may be in flight; at least 1. Each batch reads it several times."""
        self._resize()

    def answered(self, sent: float, now: float, in_flight: int) -> None:
        """Note an answer.

        Args:
            sent: when the request was sent, in seconds.
            now: the same clock's time.
            in_flight: requests in flight, including this one.
        """
        if self._fixed is not None or sent < self._began:
            return
        self._latencies.append(now - sent)
        self._reached |= in_flight >= self.size
        if len(self._latencies) >= (MEASURED if self.size == 1 else self.size):
            self._end_round(now)

    def throttled(self, sent: float, now: float) -> None:
        """Note that the server refused a request because it has too much to do. Times as for `answered`."""
        if self._fixed is None and sent >= self._began:
            self._shrink(THROTTLED_DECREASE)
            self._begin_round(now)

    def _end_round(self, now: float) -> None:
        mean = sum(self._latencies) / len(self._latencies)
        measured, alone = self._measuring, self.size == 1
        self._rounds += 1
        if alone or mean < self._lowest:
            self._lowest, self._rounds = mean, 0
        if mean > self._lowest * TOLERANCE + SLACK:
            self._shrink(DECREASE)
        elif self._reached and not measured:
            self._size = min(self._size * 2 if self._starting else self._size + 1, MOST)
        self._measuring = self._rounds >= ROUNDS_KEPT
        self._begin_round(now)

    def _resize(self) -> None:
        self.size = 1 if self._measuring else max(int(self._size), 1)

    def _shrink(self, factor: float) -> None:
        self._size = max(self._size * factor, 1.0)
        self._starting = False

    def _begin_round(self, now: float) -> None:
        self._began = now
        self._latencies.clear()
        self._reached = False
        self._resize()
