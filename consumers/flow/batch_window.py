"""How long a micro-batch stays open for more events: pure; times come in as arguments."""

from collections import deque
from collections.abc import Sequence
from math import ceil

MEAN_WINDOWS = 16  # windows over which what joins is averaged: some tenths of a second under load
P99_SAMPLES = 200  # batches that the 99th percentile is taken of: two of them are above it
P99_EVERY = 10  # batches after which it is taken anew
SHORT_WINDOW = 0.2  # of a window: what comes in bunches is together by then
MAX_LINGER = 0.01  # seconds that the reader may be kept from all else


class BatchWindow:
    """How long a micro-batch waits for more events, since its oldest one was read.

    `max_wait`, or less where a latency target leaves less; and no longer than until fewer than one more event is expected in what
    is left of that time, for then waiting helps nobody: not at all for a lone event now and then, a short while for bunches that
    come in pieces. What comes is counted whether a batch waits for it or not, so a window that is closed opens again by itself.

    Where results are published together, by a commit, a batch stays open until shortly before that: it costs no time.

    Any thread may ask; each number is written by one of them, and replaced whole.
    """

    def __init__(self, max_wait: float, target_p99: float | None = None, *, enough: int = 1 << 30) -> None:
        """Args:
        max_wait: the longest window, seconds.
        target_p99: what 99 in 100 batches' oldest events should at most take from being read to their result, seconds.
        enough: records that close a batch, so that waiting for more is of no use.
        """
        self.enough = enough
        self._max_wait = max_wait
        self._target = target_p99
        self._longest = max_wait if target_p99 is None else min(max_wait, target_p99)
        self._until = float("-inf")  # end of the window being watched
        self._soon = float("-inf")  # end of its first, short part
        self._joined_soon = self._joined_late = 0  # records in its two parts, after its first poll
        self._watched = 0  # windows, up to MEAN_WINDOWS; in the mean of them
        self._joining_soon = self._joining_late = 0.0
        self._published = float("-inf")  # when the next results are, seconds on the monotonic clock
        self._every = 0.0  # seconds between two publications
        self._closed = float("-inf")  # when the last batch was
        self._lead = 0.0  # seconds that a closed batch takes to be written, in the mean
        self._after: deque[float] = deque(maxlen=P99_SAMPLES)
        self._unlearnt = 0

    @property
    def length(self) -> float:
        """Seconds that a batch stays open. Waits at first, when nothing is known of what comes."""
        if self._joining_late >= 1 or not self._watched:
            return self._longest
        return self._longest * SHORT_WINDOW if self._joining_soon >= 1 else 0.0

    def closes(self, arrived: float) -> float:
        """When a batch closes whose oldest event was read at `arrived`.

        Where results are published together from time to time, not before it must to be among the next ones, or among those after
        them where a batch with the next ones is on its way already: nobody could read its results any sooner.
        """
        last = self._published - self._lead
        if self._closed >= last and arrived <= self._published:
            last += self._every
        return max(arrived + self.length, last)

    def note_closed(self, now: float) -> None:
        """A batch was closed."""
        self._closed = now

    def note_written(self, seconds: float) -> None:
        """A batch was written so long after it was closed."""
        self._lead += (seconds - self._lead) / MEAN_WINDOWS

    def note_publication(self, now: float, every: float) -> None:
        """What is written by now is published, and what is written later is in `every` seconds."""
        self._published, self._every = now + every, every

    @property
    def company(self) -> Sequence[float]:
        """When the reader of a batch's first record looks what came after it, before it hands that on; seconds from then."""
        soon, length = self._longest * SHORT_WINDOW, self.length
        ends = (soon, length) if length > soon > 0 else (length,) if length else ()
        return [min(end, MAX_LINGER) for end in ends]

    def note(self, arrived: float, records: int) -> None:
        """So many records were read at `arrived`, seconds on the monotonic clock, ascending."""
        if arrived <= self._soon:
            self._joined_soon += records
            return
        if arrived <= self._until:
            self._joined_late += records
            return
        if self._until > float("-inf"):
            self._watched = min(self._watched + 1, MEAN_WINDOWS)
            self._joining_soon += (self._joined_soon - self._joining_soon) / self._watched
            self._joining_late += (self._joined_late - self._joining_late) / self._watched
        self._soon, self._until = arrived + self._longest * SHORT_WINDOW, arrived + self._longest
        self._joined_soon = self._joined_late = 0

    def report(self, seconds: float) -> None:
        """A batch's results could be read so long after it was closed."""
        if self._target is None:
            return
        self._after.append(seconds)
        self._unlearnt += 1
        if self._unlearnt < P99_EVERY and len(self._after) > P99_EVERY:
            return
        self._unlearnt = 0
        p99 = sorted(self._after)[ceil(0.99 * len(self._after)) - 1]
        self._longest = min(max((self._target - p99) / (1 + SHORT_WINDOW), 0.0), self._max_wait)
