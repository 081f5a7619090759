"""How many requests an asynchronous executor sends, and how long each may take."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """The limits of the requests to a server. The worker keeps them, not the executor."""

    timeout: float = 30.0  # seconds of one request
    concurrency: int | None = None  # requests at a time; None: as many as the server answers without getting slower
    requests_per_minute: float | None = None  # of all workers of the pipeline together; None: no quota
    tokens_per_minute: float | None = None  # the same

    @property
    def has_quota(self) -> bool:
        """Whether the workers share a quota."""
        return self.requests_per_minute is not None or self.tokens_per_minute is not None
