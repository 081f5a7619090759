"""Decides which variant of a micro-batch runs first.

The first one pays for what the next ones find done: caches that are filled, threads that are awake. If it always were the
candidate, it would look slower than an identical baseline. If it were the candidate in every second batch, it would look faster,
because batches without its events are the baseline's alone. So the share of events that pay is kept the same for all.
"""

from collections import defaultdict
from collections.abc import Sequence


class VariantTurns:
    """See the module. It depends only on the batches so far. For one executor slot, which runs one batch at a time."""

    def __init__(self) -> None:
        self._events: defaultdict[int, int] = defaultdict(int)  # by variant
        self._first: defaultdict[int, int] = defaultdict(
            int
        )  # of these, the ones of batches in which the variant ran first

    def first(self, sizes: Sequence[tuple[int, int]]) -> int:
        """The variant that runs first.

        Args:
            sizes: each variant of the batch, and its events, 1 or more. Of equal ones, the first listed runs first.
        """
        chosen, events = min(sizes, key=self._share) if len(sizes) > 1 else sizes[0]
        for variant, count in sizes:
            self._events[variant] += count
        self._first[chosen] += events
        return chosen

    def _share(self, size: tuple[int, int]) -> float:
        variant, _ = size
        return self._first[variant] / max(self._events[variant], 1)
