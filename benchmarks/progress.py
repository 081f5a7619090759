"""From what was seen of a run to its figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at a running peer."""

    time: float  # seconds since it was started
    cpu: float  # seconds that it has used
    ends: Mapping[int, int]  # partition of the output topic -> the offset after what readers can see


@dataclass(frozen=True, slots=True)
class Throughput:
    """Figures of one run over a backlog, by a peer that is warm: from when it can be read until all of it is answered."""

    events: int  # of the backlog
    cpu_us: float  # CPU microseconds an event
    rate: float  # events/s
    first: float  # seconds from the process's start to its first prediction
    peak_mib: float


def throughput(
    first: float, samples: Sequence[Sample], offsets: Mapping[int, npt.NDArray[np.int64]], peak_mib: float
) -> Throughput:
    """The figures of a run.

    Args:
        first: seconds from the process's start to its first prediction.
        samples: in time; at the first one the backlog is about to be readable, at the last all of it is answered.
        offsets: partition -> offsets of the predictions, ascending. Ends of partitions are no counts: a transaction's marker
            takes an offset too.
        peak_mib: memory.

    Raises:
        ValueError: all was answered at the first sample, or not even at the last.
    """
    total = sum(map(len, offsets.values()))
    counts = [
        sum(int(np.searchsorted(of, sample.ends.get(partition, 0))) for partition, of in offsets.items())
        for sample in samples
    ]
    end = next((place for place, count in enumerate(counts) if count == total), 0)
    if end == 0:
        raise ValueError(f"{counts[-1]} of {total} predictions were seen; at the start {counts[0]}")
    events = total - counts[0]
    return Throughput(
        events=events,
        cpu_us=round((samples[end].cpu - samples[0].cpu) / events * 1e6, 3),
        rate=round(events / (samples[end].time - samples[0].time), 1),
        first=round(first, 2),
        peak_mib=round(peak_mib, 1),
    )
