"""What a worker's metrics say about it, for the scaling decision."""

import re
from dataclasses import dataclass

from millstream.consumers.observability import metrics as m
from millstream.consumers.supervision.capacity import DONE, SUM, Counters, counters

_STAGE = re.compile(r'stage="([^"]*)"')
_WANTED = {m.READY.name, m.ASSIGNED.name, SUM, *DONE}


@dataclass(frozen=True, slots=True)
class Reading:
    """What a worker's metrics say."""

    at: float  # seconds on the monotonic clock
    pid: int
    ready: bool
    assigned: int  # partitions
    counters: Counters
    text: str  # all of them, as Prometheus reads them


def reading_of(text: str, at: float, pid: int) -> Reading:
    """What these metrics say."""
    samples: dict[tuple[str, str], float] = {}
    for line in text.splitlines():
        name = line.partition("{")[0]
        if name in _WANTED:
            stage = _STAGE.search(line)
            key = name, stage[1] if stage else ""
            samples[key] = samples.get(key, 0.0) + float(line.rpartition(" ")[2])
    ready, assigned = samples.get((m.READY.name, ""), 0.0), samples.get((m.ASSIGNED.name, ""), 0.0)
    return Reading(at, pid, bool(ready), int(assigned), counters(samples), text)
