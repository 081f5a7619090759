"""Estimates a worker's capacity (events per busy second) from the counters that every worker serves. Pure.

Events per second would not do: as long as a worker keeps up, its throughput equals the arrival rate, whether it is nearly idle
or nearly full. A thread that waits for input is idle. A thread that decodes, runs the model, encodes, produces or waits for the
broker's acknowledgement is busy. Two threads work on each micro-batch, one after the other (compute: decode and infer; write:
encode, produce and commit). So the busier thread limits the worker:

    capacity = events / max(decode + infer, encode + produce + commit)      sums over the same seconds of one worker

While no events wait, micro-batches and transactions are small, and each event costs more: a worker that commits every 20 ms is
always busy, but could process many times as much. Only while events wait, the batches are full, and the rate shows the capacity.
So `CapacityEstimate` only uses these times.
"""

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from millstream.consumers.observability import metrics as m

THREADS = (
    ("decode", "infer"),
    ("encode", "produce", "commit"),
)  # the stages of `STAGE_SECONDS`, by the thread they run in
# Seconds of a worker's time in one measurement. It must be long, because a worker counts a stage only when the stage ends.
MEASUREMENT_SECONDS = 5.0
MIN_UTILISATION = 0.1  # with a lower utilisation, a worker's rate isn't measured
SMOOTHING_FACTOR = 0.3  # weight of a new measurement in the estimate
# The estimate is used only after this many seconds with waiting events: the first measurement alone may be far off.
MIN_MEASURED_SECONDS = 2.0
# Together, they count the finished records.
DONE = (m.PREDICTIONS.name, m.DEAD_LETTERS.name, m.SKIPPED.name, m.TOMBSTONES.name)
SUM = f"{m.STAGE_SECONDS.name}_sum"

Samples = Mapping[tuple[str, str], float]
"""(name, the value of its label `stage` or "") -> the sum over all other labels."""


@dataclass(frozen=True, slots=True)
class Counters:
    """A worker's counters since its start."""

    events: float
    busy: tuple[float, ...]  # busy seconds of each thread


def counters(samples: Samples) -> Counters:
    """A worker's counters from its metrics."""
    return Counters(
        sum(samples.get((name, ""), 0.0) for name in DONE),
        tuple(sum(samples.get((SUM, stage), 0.0) for stage in thread) for thread in THREADS),
    )


@dataclass(frozen=True, slots=True)
class Work:
    """What one worker did between two readings of its counters."""

    events: float
    busy: float  # busy seconds of its busiest thread, at most `seconds`
    seconds: float  # time between the readings


def work_between(before: Counters, after: Counters, seconds: float) -> Work | None:
    """The work of one process; None if the worker restarted in between (then its counters start at 0)."""
    busy = [late - early for early, late in zip(before.busy, after.busy, strict=True)]
    if seconds <= 0 or after.events < before.events or min(busy) < 0:
        return None
    return Work(after.events - before.events, min(max(busy), seconds), seconds)


class CapacityEstimate:
    """Follows the capacity of a pipeline's workers. It measures the best worker, because the others may have little to do."""

    def __init__(self) -> None:
        self.capacity: float | None = None  # events per busy second of one worker; None: no events have waited yet
        # Share of their time during which the workers were busy, over the last MEASUREMENT_SECONDS: a reading in the middle of a
        # long batch shows nothing of it.
        self.utilisation = 0.0
        self._looks: deque[Mapping[int, Work]] = deque()  # those that `utilisation` is of
        self._seconds = 0.0  # seconds with waiting events so far
        self._first = True  # whether `_recent` still contains all of them
        self._recent: dict[int, deque[Work]] = {}  # by worker number

    @property
    def learnt(self) -> float | None:
        """The capacity, once it was measured for long enough to be used."""
        return self.capacity if self._seconds >= MIN_MEASURED_SECONDS else None

    def add(self, works: Mapping[int, Work], *, behind: bool) -> None:
        """Take what the workers did since the last reading.

        Args:
            works: the work of each worker, by number.
            behind: whether events waited for workers.
        """
        self._update_utilisation(works)
        if not behind:
            self._recent.clear()
            self._first = self.capacity is None
            return
        for number, work in works.items():
            recent = self._recent.setdefault(number, deque())
            recent.append(work)
            while sum(w.seconds for w in recent) - recent[0].seconds >= MEASUREMENT_SECONDS:
                recent.popleft()
        for gone in self._recent.keys() - works.keys():
            del self._recent[gone]
        measured = max((_rate(recent) for recent in self._recent.values()), default=0.0)
        if measured > 0:
            self._seconds += max(work.seconds for work in works.values())
            # Until the first window is full, it contains all measurements, so it replaces the estimate.
            share = 1.0 if self.capacity is None or self._first else SMOOTHING_FACTOR
            self.capacity = measured if self.capacity is None else self.capacity + share * (measured - self.capacity)
            self._first = self._first and self._seconds < MEASUREMENT_SECONDS

    def _update_utilisation(self, works: Mapping[int, Work]) -> None:
        if not works:  # no worker is ready
            self._looks.clear()
            self.utilisation = 0.0
            return
        self._looks.append(works)
        while sum(map(_span, self._looks)) - _span(self._looks[0]) >= MEASUREMENT_SECONDS:
            self._looks.popleft()
        done = [work for look in self._looks for work in look.values()]
        self.utilisation = sum(work.busy for work in done) / sum(work.seconds for work in done)


def _span(look: Mapping[int, Work]) -> float:
    """The seconds between two readings."""
    return max(work.seconds for work in look.values())


def _rate(works: Collection[Work]) -> float:
    """Events per busy second; 0 if the workers were busy for too short a time."""
    events, busy, seconds = (sum(getattr(work, field) for work in works) for field in ("events", "busy", "seconds"))
    return float(events / busy) if busy >= MIN_UTILISATION * seconds > 0 else 0.0
