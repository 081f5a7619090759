"""Leaves a variant of a rollout alone for a while after its executor failed, and says so."""

import logging
import threading
import time
from collections.abc import Callable

log = logging.getLogger(__name__)

BACK_OFF = (0.1, 10.0)  # seconds: the first wait before the variant is asked again, and the longest


class VariantOutage:
    """Whether a variant can answer now. The executor slots share it.

    Several slots may ask the variant at the same time. If it is away, all of them fail, but that is one failure: the wait must
    not grow with the number of slots. And a slot that asked before a failure does not show that the variant works after it. So
    a call's result counts only if no failure came between the call's begin and its end.
    """

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        """Args:
        name: of the variant and its version, for messages.
        clock: seconds.
        """
        self._name = name
        self._clock = clock
        self._lock = threading.Lock()  # of all below
        self._is_away = False
        self._wait = 0.0  # from the last failure to the next try
        self._until = 0.0  # the end of this wait
        self._failures = 0

    @property
    def lasts(self) -> bool:
        """Whether the variant is left alone."""
        return self._is_away and self._clock() < self._until

    def ask(self) -> int:
        """Note that the variant is asked. Returns a number for `failed` or `answered`."""
        return self._failures

    def failed(self, asked: int, error: Exception) -> None:
        """Note that its executor failed, and no event is to blame. `asked`: what `ask` returned."""
        first, longest = BACK_OFF
        with self._lock:
            if asked != self._failures:
                return
            self._failures += 1
            self._wait = min(2 * self._wait, longest) if self._is_away else first
            self._until = self._clock() + self._wait
            begins, self._is_away = not self._is_away, True
        if begins:
            log.warning(
                "%s can't answer: %s: %s. The baseline answers its events until it can",
                self._name,
                type(error).__name__,
                error,
            )

    def answered(self, asked: int) -> None:
        """Note that it works. `asked`: what `ask` returned."""
        if not self._is_away:  # without the lock: each batch comes here
            return
        with self._lock:
            if asked != self._failures or not self._is_away:
                return
            self._is_away = False
        log.info("%s answers again", self._name)
