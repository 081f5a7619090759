"""Leaves a variant of a rollout alone for a while after its executor failed, and says so."""

import logging
import time
from collections.abc import Callable

from millstream.consumers.observability import metrics as m

log = logging.getLogger(__name__)

BACK_OFF = (0.1, 10.0)  # seconds: the first wait before the variant is asked again, and the longest


class VariantOutage:
    """Whether a variant can answer now. The executor slots share it."""

    def __init__(self, name: str, metrics: m.Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        """Args:
        name: of the variant and its version, for messages.
        metrics: where to count.
        clock: seconds.
        """
        self._name = name
        self._metrics = metrics
        self._clock = clock
        self._wait = 0.0  # 0: no outage
        self._until = 0.0

    @property
    def lasts(self) -> bool:
        """Whether the variant is left alone."""
        return bool(self._wait) and self._clock() < self._until

    def failed(self, error: Exception) -> None:
        """Note that its executor failed, and no event is to blame."""
        first, longest = BACK_OFF
        if not self._wait:
            log.warning(
                "%s can't answer: %s: %s. The baseline answers its events until it can",
                self._name,
                type(error).__name__,
                error,
            )
        self._wait = min(2 * self._wait, longest) or first
        self._until = self._clock() + self._wait

    def answered(self) -> None:
        """Note that it works."""
        if self._wait:
            self._wait = 0.0
            log.info("%s answers again", self._name)

    def count(self, variant: str, reason: str, events: int) -> None:
        """Count events that the baseline answered in place of the variant."""
        self._metrics.count(m.ROLLOUT_FALLBACKS, events, variant, reason)
