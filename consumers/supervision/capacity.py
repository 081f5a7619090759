"""A worker's capacity: events per busy second, from the counters that every worker serves. Pure.

Why not events per second: a worker with nothing to do, or with a full core, shows the same throughput as arrival gives it, and
says nothing about what it could do. A stage's thread that waits for input is idle; one that decodes, runs the model, encodes,
produces or waits for the broker's acknowledgement is busy, and can do nothing else. Two threads work one after the other on each
micro-batch (compute: decode and infer; write: encode, produce and commit), so the busier one is the bound:

    capacity = events / max(decode + infer, encode + produce + commit)      sums over the same seconds of one worker

While nothing waits, micro-batches and transactions are small and dear: a worker that commits every 20 ms is busy all the time,
and could still do many times as much. What a worker can do shows only while events wait for it, for then its batches are full:
`CapacityEstimate` learns from that alone.
"""

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from millstream.consumers.observability import metrics as m

THREADS = (
    ("decode", "infer"),
    ("encode", "produce", "commit"),
)  # the stages of `STAGE_SECONDS`, by the thread they run in
MEASUREMENT_SECONDS = 5.0  # seconds of a worker's time that a measurement is made of: stages are counted when they end
MIN_UTILISATION = 0.1  # utilisation below which a worker's work says nothing
SMOOTHING_FACTOR = 0.3  # of a new measurement in the estimate
MIN_MEASURED_SECONDS = (
    2.0  # seconds with events waiting from which the estimate is one to decide by: the first one alone may be far off
)
DONE = (m.PREDICTIONS.name, m.DEAD_LETTERS.name, m.TOMBSTONES.name)  # what becomes of a record
SUM = f"{m.STAGE_SECONDS.name}_sum"

Samples = Mapping[tuple[str, str], float]
"""(name, the value of its label `stage` or "") -> the sum over all other labels."""


@dataclass(frozen=True, slots=True)
class Counters:
    """What a worker has done since its start."""

    events: float
    busy: tuple[float, ...]  # seconds, by thread


def counters(samples: Samples) -> Counters:
    """A worker's counters from its metrics."""
    return Counters(
        sum(samples.get((name, ""), 0.0) for name in DONE),
        tuple(sum(samples.get((SUM, stage), 0.0) for stage in thread) for thread in THREADS),
    )


@dataclass(frozen=True, slots=True)
class Work:
    """What one worker did between two looks at its counters."""

    events: float
    busy: float  # seconds, of its busiest thread, at most `seconds`
    seconds: float  # that passed


def work_between(before: Counters, after: Counters, seconds: float) -> Work | None:
    """The work of one process; None where the counters are another process's (a restart begins at 0)."""
    busy = [late - early for early, late in zip(before.busy, after.busy, strict=True)]
    if seconds <= 0 or after.events < before.events or min(busy) < 0:
        return None
    return Work(after.events - before.events, min(max(busy), seconds), seconds)


class CapacityEstimate:
    """Follows the capacity of a pipeline's workers, all alike: what the best of them does, for others may have little to do."""

    def __init__(self) -> None:
        self.capacity: float | None = (
            None  # events per busy second of one worker; None: events have never waited for one
        )
        self.utilisation = 0.0  # share of their time that the workers were busy, at the last look
        self._seconds = 0.0  # that it was learnt in
        self._first = True  # whether all of them are in `_recent`
        self._recent: dict[int, deque[Work]] = {}  # by worker number

    @property
    def learnt(self) -> float | None:
        """The capacity, once it was seen for long enough to decide by it."""
        return self.capacity if self._seconds >= MIN_MEASURED_SECONDS else None

    def add(self, works: Mapping[int, Work], *, behind: bool) -> None:
        """Take what the workers did since the last look.

        Args:
            works: by worker number.
            behind: whether events waited for workers.
        """
        seconds = sum(work.seconds for work in works.values())
        self.utilisation = sum(work.busy for work in works.values()) / seconds if seconds else 0.0
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
            # Until the first window is full it holds all there is to know.
            share = 1.0 if self.capacity is None or self._first else SMOOTHING_FACTOR
            self.capacity = measured if self.capacity is None else self.capacity + share * (measured - self.capacity)
            self._first = self._first and self._seconds < MEASUREMENT_SECONDS


def _rate(works: Collection[Work]) -> float:
    """Events per busy second; 0 where there is too little to tell."""
    events, busy, seconds = (sum(getattr(work, field) for work in works) for field in ("events", "busy", "seconds"))
    return float(events / busy) if busy >= MIN_UTILISATION * seconds > 0 else 0.0
