"""Goes on without features while their store is away, for pipelines that ask for it (`on_outage: missing`)."""

import logging
import time
from collections.abc import Callable

from millstream.inference.errors import FeatureStoreUnavailable

log = logging.getLogger(__name__)

BACK_OFF = (0.1, 10.0)  # seconds: the first time in which a store that was away isn't asked, and the longest
LOG_INTERVAL = 60.0  # seconds between two lines about one outage


class Fallback:
    """Decides when a store that is away is asked again. The look-ups of one store share it; one thread uses it.

    Without it, each block of events would wait for the timeout, and the pipeline would be as slow as the store.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns seconds."""
        self._clock = clock
        self._wait = 0.0  # the last wait; 0: the store works
        self._due = 0.0  # when the store is asked again
        self._since = 0.0
        self._logged = 0.0

    def is_due(self) -> bool:
        """Whether to ask the store."""
        return not self._wait or self._clock() >= self._due

    def failed(self, error: FeatureStoreUnavailable) -> None:
        """Note that the store doesn't answer."""
        now, (first, longest) = self._clock(), BACK_OFF
        if not self._wait:
            self._since = now
        if not self._wait or now - self._logged >= LOG_INTERVAL:
            self._logged = now
            log.warning(
                "%s; features count as missing until it does (feature_store.on_outage: missing)", str(error).rstrip(".")
            )
        self._wait = min(2 * self._wait, longest) or first
        self._due = now + self._wait

    def worked(self) -> None:
        """Note that the store answers."""
        if self._wait:
            log.info("the feature store answers again, after %.0f s", self._clock() - self._since)
        self._wait = 0.0
