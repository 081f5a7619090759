"""Decides how long a micro-batch waits for more events. Pure: times are arguments."""

from collections import deque
from collections.abc import Iterator
from math import ceil

MEAN_WINDOWS = 16  # the means are taken over about so many windows: some tenths of a second under load
P99_SAMPLES = 200  # batches for the 99th percentile: two of them are above it
P99_EVERY = 10  # batches between two updates of the 99th percentile
SHORT_WINDOW = 0.2  # share of a window, after which a burst of events has arrived
MAX_LINGER = 0.02  # seconds that the main thread may wait here, where it can't do anything else
LEAST_LINGER = 0.0005  # seconds that it waits at least, because a poll costs CPU
# Seconds before a batch closes at which the main thread passes records on that should run in it. They wait for the next
# publication if they come too late, so this is several times as long as it takes.
HAND_OVER = 0.001


class BatchWindow:
    """How long a micro-batch waits for more events, counted from when its oldest event was read.

    It is `max_wait` at most, or less to meet a latency target. It is shorter if waiting would bring less than one more event: a
    batch doesn't wait at all if events come one at a time, and waits only for a fifth of the time if they come in bursts. Events
    are counted even if no batch waits for them, so the window grows again by itself when more come.

    If a commit publishes results together, a batch stays open until shortly before the next commit. That costs no latency. The
    next commit comes one interval after the beginning of the last one. It comes later where the last one isn't over by then:
    nothing can be written during a commit, so a batch that closes sooner would only wait. While a commit takes longer than
    those before it, nobody knows when the next one comes. Then records go on waiting in short steps, so that all that came
    meanwhile are in the next one.

    All threads may read it. Each number is written by one thread only, and replaced as a whole.
    """

    def __init__(self, max_wait: float, target_p99: float | None = None, *, enough: int = 1 << 30) -> None:
        """Args:
        max_wait: the longest window, seconds.
        target_p99: seconds from reading a batch's oldest event to its result, which 99 % of the batches should not exceed.
        enough: records that fill a batch, so that it need not wait for more.
        """
        self.enough = enough
        self._max_wait = max_wait
        self._target = target_p99
        self._longest = max_wait if target_p99 is None else min(max_wait, target_p99)
        self._until = float("-inf")  # end of the window that is being observed
        self._soon = float("-inf")  # end of the window's first, short part
        self._joined_soon = self._joined_late = 0  # records in the two parts, after the first poll
        self._watched = 0  # windows, up to MEAN_WINDOWS; in the mean of them
        self._joining_soon = self._joining_late = 0.0
        self._began = float("-inf")  # when the last publication began, seconds on the monotonic clock
        self._writable = float("-inf")  # when the last publication was over, and results could be written again
        self._rest = 0.0  # seconds after the end of a publication in which nothing can be written
        self._takes = 0.0  # mean seconds between these two
        self._published = float("-inf")  # when the next results are published
        self._least = 0.0  # seconds between two publications, at least
        self._every = 0.0  # seconds between two publications
        self._closed = float("-inf")  # when the last batch was closed
        # Mean seconds from closing a batch to writing it, without those in which nothing could be written.
        self._lead = 0.0
        self._after: deque[float] = deque(maxlen=P99_SAMPLES)
        self._unlearnt = 0

    @property
    def length(self) -> float:
        """Seconds that a batch stays open. It is the longest while nothing is known about the arrivals."""
        if self._joining_late >= 1 or not self._watched:
            return self._longest
        return self._longest * SHORT_WINDOW if self._joining_soon >= 1 else 0.0

    def closes(self, arrived: float) -> float:
        """When a batch closes whose oldest event was read at `arrived`.

        If results are published together from time to time, it closes just in time for the next publication. If another batch
        has already been closed for that one, it closes in time for the publication after it. Closing sooner would not help:
        readers could not see the results any sooner.
        """
        return max(arrived + self.length, self._closes_for_publication(arrived, arrived))

    def _closes_for_publication(self, arrived: float, now: float) -> float:
        """When a batch closes for the next publication that can have the results of records read at `arrived`.

        It is what is known at `now`: a publication that isn't over yet may end at once.
        """
        under_way = self._writable < self._began
        last = (max(self._published, now + self._rest) if under_way else self._published) - self._lead
        # A publication comes late where its batch is written late. Until it begins, records are as late for it as before.
        expected = arrived <= self._published or self._began <= self._closed
        return last + self._every if self._closed >= last and expected else last

    def note_closed(self, now: float) -> None:
        """Note that a batch was closed."""
        self._closed = now

    def note_written(self, closed: float, now: float) -> None:
        """Note that a batch was written, and when it was closed."""
        blocked = max(min(now, self._writable) - max(closed, self._began), 0.0)
        self._lead += (now - closed - blocked - self._lead) / MEAN_WINDOWS

    def note_publication(self, now: float, every: float) -> None:
        """Note that a publication begins: results written later are in the next one, which comes in `every` seconds or later."""
        self._began, self._least = now, every
        self._expect(self._takes)

    def note_published(self, now: float, rest: float) -> None:
        """Note that a publication is over, and that results can be written again in `rest` seconds."""
        self._writable, self._rest = now + rest, rest
        took = self._writable - self._began
        self._takes += (took - self._takes) / MEAN_WINDOWS
        self._expect(took)

    def _expect(self, took: float) -> None:
        self._every = max(self._least, took)
        self._published = self._began + self._every

    def lingers(self, came: float) -> Iterator[float]:
        """When the main thread polls again before it passes a batch's first record on, in seconds from `came`, when it read it.

        If results are published together, it polls for the last time shortly before the batch closes. So it wakes the compute
        thread once for each publication, however often the client gets records. Each time is asked for when the one before it
        has come, and follows from what is known then.
        """
        soon, length = self._longest * SHORT_WINDOW, self.length
        waited, last = 0.0, self._passes_on(came, came) - came
        for end in (soon, length) if length > soon else (length,):
            if waited < end and (end < last or last <= 0):
                waited = min(end, MAX_LINGER)
                yield waited
        while waited < MAX_LINGER:
            last = self._passes_on(came, came + waited) - came
            if last < waited + LEAST_LINGER:
                return
            waited = min(last, MAX_LINGER)
            yield waited

    def _passes_on(self, came: float, now: float) -> float:
        """When the main thread passes records on that it read at `came`, for the next publication that can have their results."""
        last = self._closes_for_publication(came, now) - HAND_OVER
        return last + self._every if last <= came <= self._published else last

    def note(self, arrived: float, records: int) -> None:
        """Note that records were read at `arrived`, in seconds on the monotonic clock. Times must ascend."""
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
        """Note how long after its closing readers could see a batch's results."""
        if self._target is None:
            return
        self._after.append(seconds)
        self._unlearnt += 1
        if self._unlearnt < P99_EVERY and len(self._after) > P99_EVERY:
            return
        self._unlearnt = 0
        p99 = sorted(self._after)[ceil(0.99 * len(self._after)) - 1]
        self._longest = min(max((self._target - p99) / (1 + SHORT_WINDOW), 0.0), self._max_wait)
