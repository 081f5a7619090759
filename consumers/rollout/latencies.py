"""Compares how slow the slowest events of two variants are: by the geometric mean of the latencies above a quantile.

A quantile itself can't be compared on a busy machine. There, most calls of a model take a millisecond, and some wait for the
processor, so they take ten. If that is about one call in twenty, the 95th percentile lies between the two, and jumps from one to
the other at each look. The mean of the slowest fifth moves much less.

The logarithm keeps single calls that take very long from deciding alone. The mean of `q + max(x - q, 0) / (1 - p)` over all
events is the mean of the values above the p-quantile q, and hardly depends on an error of q: R. T. Rockafellar, S. Uryasev,
"Optimization of Conditional Value-at-Risk", Journal of Risk 2(3), 2000. So it is a mean like all others, with an interval as in
boundaries.py.

Latencies come in clusters: the events of a micro-batch have the same one, and while a machine is busy, all are slow. So the
clusters are blocks of time. Below 100 %, both variants answer at the same time, so what they share in a block cancels out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from millstream.consumers.rollout.clusters import Clusters, Difference, in_same_clusters

if TYPE_CHECKING:
    from millstream.schemas.arrays import Floats, Ints

LATENCY: Final = "latency"
"""Name of the metric."""
BLOCKS: Final = 128
"""Most blocks of a time. There are at least half as many, unless the time is shorter than so many ms."""
LEAST_BLOCKS: Final = 20.0
"""Blocks with slow events, of each side, from which an interval is trusted."""
_LEAST_MS: Final = 1e-3


@dataclass(frozen=True, slots=True)
class Slowest:
    """The slowest events of a variant."""

    logarithms: Clusters  # by block of time; the mean is the logarithm of the slowest events' geometric mean in ms
    blocks: Floats  # [blocks]: how many of the slowest events each block has


def blocks_of(baseline: Ints, candidate: Ints) -> tuple[Ints, Ints]:
    """The block of each event of both sides: [events], 0 to 255. Blocks get longer with the time that they divide.

    At 100 %, the baseline's events are from before the candidate's. Then each side has blocks of its own.

    Args:
        baseline: the times of its events, ms since the epoch, [events].
        candidate: likewise.
    """
    if len(baseline) and len(candidate) and baseline.max() < candidate.min():
        return _divided(baseline), BLOCKS + _divided(candidate)
    both = _divided(np.concatenate([baseline, candidate]))
    return both[: len(baseline)], both[len(baseline) :]


def slowest(blocks: Ints, milliseconds: Floats, quantile: float) -> Slowest:
    """The slowest events.

    Args:
        blocks: of each event, [events].
        milliseconds: [events].
        quantile: 0.8 is the slowest fifth.
    """
    logs = np.log(np.maximum(milliseconds, _LEAST_MS))
    if not len(logs):
        return Slowest(Clusters.empty(buckets=2 * BLOCKS), np.zeros(2 * BLOCKS))
    edge = np.quantile(logs, quantile, method="inverted_cdf")
    values = edge + np.maximum(logs - edge, 0) / (1 - quantile)
    above = np.bincount(blocks[logs >= edge], minlength=2 * BLOCKS).astype(np.float64)
    return Slowest(Clusters.of(blocks, values, 2 * BLOCKS), above)


def compared(baseline: Slowest, candidate: Slowest) -> Difference:
    """The logarithm of the candidate's geometric mean minus that of the baseline's. Its clusters are blocks with slow events."""
    found = in_same_clusters(baseline.logarithms, candidate.logarithms)
    effective = np.minimum(*(effective_blocks(own.blocks) for own in (baseline, candidate)))
    return Difference(found.estimate, found.variance, np.maximum(effective - 1, 1.0), effective)


def effective_blocks(slow: Floats) -> Floats:
    """As how many blocks with equally many slow events they count. `slow`: how many each block has, [blocks]."""
    return Clusters(slow, slow).effective


def _divided(times: Ints) -> Ints:
    """The block of each time: [events], 0 to 127."""
    if not len(times):
        return times
    begin, end = int(times.min()), int(times.max())
    found: Ints = (times - begin) // (1 << ((end - begin) // BLOCKS).bit_length())
    return found
