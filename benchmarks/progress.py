"""Computes a run's figures from samples that were taken during the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Sample:
    """The state of a running peer at one time."""

    time: float  # seconds since its start
    cpu: float  # CPU seconds so far
    ends: Mapping[int, int]  # partition of the output topic -> the offset after the last record that readers can see


@dataclass(frozen=True, slots=True)
class Throughput:
    """A warm peer's figures for one backlog: from when the backlog is readable until all predictions are there."""

    events: int  # events of the backlog
    cpu_us: float  # CPU microseconds per event
    rate: float  # events/s
    first: float  # seconds from the process's start to its first prediction
    peak_mib: float


def throughput(
    first: float, samples: Sequence[Sample], offsets: Mapping[int, npt.NDArray[np.int64]], peak_mib: float
) -> Throughput:
    """The figures of a run.

    Args:
        first: seconds from the process's start to its first prediction.
        samples: in order of time. At the first, the backlog is about to become readable; at the last, all predictions are there.
        offsets: partition -> offsets of the predictions, ascending. The ends of partitions can't be used as counts, because a
            transaction's marker takes an offset, too.
        peak_mib: peak memory.

    Raises:
        ValueError: all predictions were there at the first sample, or some were missing at the last.
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
