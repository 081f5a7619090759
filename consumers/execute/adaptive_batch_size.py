"""How many events run at once where memory is short. Pure."""

# Calls of full size that succeed before more is tried: after a first failure, and at most.
SUCCESSES_TO_GROW = (32, 4096)
STEPS = 32  # growing from nothing to the most takes about so many of them


class AdaptiveBatchSize:
    """The number of events that fit the memory: found by failing, remembered, tried beyond now and then.

    A size that failed is halved until one works. From there it grows by a fixed step after a run of successes. A try that fails
    goes back to the size that worked, and the next one waits twice as long: where the memory is what it is, failures become rare;
    where it comes back, so does the size. (Additive increase, as in Chiu and Jain 1989; a decrease only where nothing is known.)
    """

    def __init__(self, max_events: int) -> None:
        self._most = max_events
        self._step = max(max_events // STEPS, 1)
        self._worked = 0  # the largest size that ran since a failure; 0: none yet
        self._successes = 0  # of calls of this size, since it changed
        self._patience = SUCCESSES_TO_GROW[0]
        self.size = max_events
        """Events to run at once; at least 1."""

    def failed(self, events: int) -> None:
        """Note that so many events, `size` or fewer, did not fit."""
        if self._worked < events:
            self._patience = min(self._patience * 2, SUCCESSES_TO_GROW[1]) if self._worked else SUCCESSES_TO_GROW[0]
        else:  # there is less memory than there was
            self._worked = 0
            self._patience = SUCCESSES_TO_GROW[0]
        self.size = self._worked or max(events // 2, 1)
        self._successes = 0

    def fitted(self, events: int) -> None:
        """Note that so many events ran. Fewer than `size` say nothing about it."""
        if events < self.size:
            return
        if self._worked and self.size > self._worked:
            self._patience = SUCCESSES_TO_GROW[0]  # there is more memory than there was
        self._worked = self.size
        self._successes += 1
        if self._successes >= self._patience:
            self.size = min(self.size + self._step, self._most)
            self._successes = 0
