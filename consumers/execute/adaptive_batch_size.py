"""Adapts the number of events per model call if memory is short. Pure."""

# Successful calls of full size before a larger size is tried: after the first failure, and at most.
SUCCESSES_TO_GROW = (32, 4096)
STEPS = 32  # steps from zero to the largest size


class AdaptiveBatchSize:
    """The number of events that fit into memory.

    After an out-of-memory error, the size is halved until a call succeeds. From there, it grows by a fixed step after a number
    of successes. If a larger size fails, it goes back to the size that worked, and the next try waits twice as long. So failures
    become rare if memory stays short, and the size recovers if memory becomes free. (Additive increase, as in Chiu and Jain,
    1989. It decreases by halves only if no size is known to work.)
    """

    def __init__(self, max_events: int) -> None:
        self._most = max_events
        self._step = max(max_events // STEPS, 1)
        self._worked = 0  # the size that worked last; 0: not known
        self._successes = 0  # successful calls of the current size
        self._patience = SUCCESSES_TO_GROW[0]
        self.size = max_events
        """Events per call; at least 1."""

    def failed(self, events: int) -> None:
        """Note that a call with this many events ran out of memory."""
        if self._worked < events:
            self._patience = min(self._patience * 2, SUCCESSES_TO_GROW[1]) if self._worked else SUCCESSES_TO_GROW[0]
        else:  # there is less memory than before
            self._worked = 0
            self._patience = SUCCESSES_TO_GROW[0]
        self.size = self._worked or max(events // 2, 1)
        self._successes = 0

    def fitted(self, events: int) -> None:
        """Note that a call with this many events succeeded. Fewer than `size` prove nothing about `size`."""
        if events < self.size:
            return
        if self._worked and self.size > self._worked:
            self._patience = SUCCESSES_TO_GROW[0]  # there is more memory than before
        self._worked = self.size
        self._successes += 1
        if self._successes >= self._patience:
            self.size = min(self.size + self._step, self._most)
            self._successes = 0
