"""Reads from a worker's metrics what the scaling decision needs."""

import re
from dataclasses import dataclass

from millstream.consumers.observability import metrics as m
from millstream.consumers.supervision.capacity import DONE, SUM, Counters, counters

_STAGE = re.compile(r'stage="([^"]*)"')
_WANTED = {m.READY.name, m.ASSIGNED.name, SUM, *DONE}


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading of a worker's metrics."""

    at: float  # seconds on the monotonic clock
    pid: int
    ready: bool
    assigned: int  # number of assigned partitions
    counters: Counters
    text: str  # all metrics, in Prometheus's text format


def reading_of(text: str, at: float, pid: int) -> Reading:
    """Parse these metrics."""
    samples: dict[tuple[str, str], float] = {}
    for line in text.splitlines():
        name = line.partition("{")[0]
        if name in _WANTED:
            stage = _STAGE.search(line)
            key = name, stage[1] if stage else ""
            samples[key] = samples.get(key, 0.0) + float(line.rpartition(" ")[2])
    ready, assigned = samples.get((m.READY.name, ""), 0.0), samples.get((m.ASSIGNED.name, ""), 0.0)
    return Reading(at, pid, bool(ready), int(assigned), counters(samples), text)
