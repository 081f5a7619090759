"""Quotas of requests and of tokens that all workers of a group share. Pure: times are arguments.

Each worker gets the share of a quota that it has of the partitions. A partition has one owner at a time, so the shares never add
up to more than 1, also during a rebalance, and the workers need not talk to each other.
"""

ROUNDING = 1e-9  # share of an amount that may be missing, because times are rounded
BURST_SECONDS = 1.0  # a worker that was idle may send the requests of this time at once


class TokenBucket:
    """Permits an amount per second, and a burst after an idle time.

    In any time, it permits at most rate x time + the burst. If a single amount is larger than the burst, it counts in its place.
    """

    def __init__(self, rate: float, now: float) -> None:
        """It begins empty, so that workers that start again and again don't exceed the quota.

        Args:
            rate: the amount per second.
            now: seconds on any clock that only goes forward.
        """
        self._rate = rate
        self._level = (
            0.0  # what was permitted and not taken; more than the burst counts only for a single larger amount
        )
        self._filled = now

    @property
    def burst(self) -> float:
        """The amount that may be taken at once after an idle time."""
        return self._rate * BURST_SECONDS

    def set_rate(self, rate: float, now: float) -> None:
        """Change the rate. If it falls, what exceeds the new burst is lost. If it rises, nothing is added."""
        if rate == self._rate:
            return
        self._fill(now)
        self._level = min(self._level, self.burst)
        self._rate = rate
        self._level = min(self._level, self.burst)

    def skip_to(self, now: float) -> None:
        """Permit nothing for the time since the last call."""
        self._filled = now

    def wait(self, amount: float, now: float) -> float:
        """Seconds until this amount may be taken; 0: now. It is infinite at a rate of 0."""
        self._fill(now)
        missing = amount - self._permitted(amount)
        if missing <= ROUNDING * amount:
            return 0.0
        return missing / self._rate if self._rate else float("inf")

    def take(self, amount: float) -> None:
        """Take an amount. It may be more than there is: then the next ones wait longer."""
        self._level = self._permitted(amount) - amount

    def _permitted(self, amount: float) -> float:
        return min(self._level, max(self.burst, amount))

    def _fill(self, now: float) -> None:
        self._level += (now - self._filled) * self._rate
        self._filled = now


class GroupQuota:
    """The worker's share of the quotas of a whole group."""

    def __init__(self, requests_per_minute: float | None, tokens_per_minute: float | None, now: float) -> None:
        """Args:
        requests_per_minute: of the group; None: no quota.
        tokens_per_minute: the same.
        now: seconds on a clock that only goes forward.
        """
        quotas = (requests_per_minute, tokens_per_minute)
        self._rates = [None if quota is None else quota / 60 for quota in quotas]
        self._buckets = [None if rate is None else TokenBucket(0.0, now) for rate in self._rates]

    def __bool__(self) -> bool:
        """Whether there is a quota."""
        return any(self._buckets)

    def set_share(self, share: float, now: float, *, known: bool) -> None:
        """Set the worker's share of the quotas, from 0 to 1.

        Args:
            share: the share.
            now: seconds on the clock.
            known: whether the worker had this share all the time since the last call. If not, nothing was permitted meanwhile.
        """
        for rate, bucket in zip(self._rates, self._buckets, strict=True):
            if rate is not None and bucket is not None:
                if not known:
                    bucket.skip_to(now)
                bucket.set_rate(rate * share, now)

    def take(self, tokens: float, now: float) -> float:
        """Take one request with so many tokens.

        Returns:
            0; or the seconds to wait if nothing was taken, infinite for a worker without a share.
        """
        amounts = (1.0, tokens)
        wait = max(
            (bucket.wait(amount, now) for bucket, amount in zip(self._buckets, amounts, strict=True) if bucket),
            default=0.0,
        )
        if wait <= 0:
            for bucket, amount in zip(self._buckets, amounts, strict=True):
                if bucket:
                    bucket.take(amount)
        return wait

    def correct_tokens(self, difference: float) -> None:
        """Take so many tokens more (or less, if negative) than a request was estimated to need."""
        if bucket := self._buckets[1]:
            bucket.take(difference)
