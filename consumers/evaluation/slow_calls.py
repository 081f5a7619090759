"""Says why the latency has no interval yet, and about when it has: its slow calls lie in too few blocks of time.

It is only a forecast, and decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import numpy as np

from millstream.consumers.evaluation.latency import Timed, timed_sides
from millstream.consumers.rollout.latencies import LATENCY, LEAST_BLOCKS, blocks_of, effective_blocks, slowest
from millstream.consumers.rollout.rounded import A_SECOND, span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.consumers.evaluation.figures import CandidateVerdicts
    from millstream.consumers.evaluation.settings import StepSettings
    from millstream.consumers.evaluation.sides import Side
    from millstream.schemas.arrays import Floats, Ints, Mask

_LEAST_MS: Final = 10_000  # the first calls tell nothing about the rate
_BURST_SHARE: Final = 0.2  # of the slow calls: fewer don't dominate
_BURST_TIMES: Final = 3.0  # times as many slow calls as the median block
_TIMES_THE_BURST: Final = 5.0
"""So many times the slow calls of a burst are enough: if the others count as 60 blocks, all count as 20."""


def latency_outlook(
    settings: StepSettings, baseline: Side, candidate: Side, found: CandidateVerdicts, *, is_thinned: bool
) -> Iterator[str]:
    """A sentence if the latency is not decided because its interval is not known; else nothing.

    Args:
        settings: of the step.
        baseline: its events.
        candidate: its events.
        found: what they show.
        is_thinned: whether only a part of the events is kept, so that there may never be more.
    """
    verdict = next((own for own in found.verdicts if own.metric == LATENCY), None)
    if verdict is None or verdict.outcome != "undecided":
        return
    both = timed_sides(settings, baseline, candidate)
    blocks = blocks_of(*(own.times for own in both))
    sides = [_Slow.of(calls, own, settings.latency_quantile) for calls, own in zip(both, blocks, strict=True)]
    fewer = min((0, 1), key=lambda number: sides[number].effective)
    side = sides[fewer]
    if not 0 < side.effective < LEAST_BLOCKS:
        return
    whose = (settings.variants[0].name, found.candidate)[fewer]
    burst = side.burst()
    when = "" if burst is None else burst.told()
    left = "" if is_thinned else side.left(burst)
    if settings.before and fewer == 0:  # at 100 %, the baseline's calls are from before the step
        left = "no more of them come: `millstream rollout promote` goes on"
    told = f"the slow calls of {whose} count as {int(side.effective)} of the {LEAST_BLOCKS:g} blocks of time that are needed"
    yield f"{LATENCY}: {'; '.join(filter(None, (told, when, left)))}"


@dataclass(frozen=True, slots=True)
class _Burst:
    """Adjacent blocks of time with many slow calls, as of a backlog."""

    calls: Mask  # those in its blocks, [calls]
    share: float  # of the slow calls
    begin: int  # ms since the epoch
    ms: int

    def told(self) -> str:
        at = datetime.fromtimestamp(self.begin / 1000, UTC).strftime("%H:%M:%S")
        return f"{self.share:.0%} of them came in one burst, within {span(self.ms)} from {at} UTC on"


@dataclass(frozen=True, slots=True)
class _Slow:
    """The calls of a version, and in which blocks the slow ones are."""

    calls: Timed
    blocks: Ints  # of each call
    counts: Floats  # slow calls, [blocks]
    quantile: float
    effective: float  # as how many blocks they count

    @classmethod
    def of(cls, calls: Timed, blocks: Ints, quantile: float) -> _Slow:
        counts = slowest(blocks, calls.milliseconds, quantile).blocks
        return cls(calls, blocks, counts, quantile, float(effective_blocks(counts)))

    @property
    def ms(self) -> int:
        """From the first call to the last one."""
        return int(np.ptp(self.calls.times))

    def burst(self) -> _Burst | None:
        """The one that keeps the slow calls in few blocks, if it is one."""
        filled = np.unique(self.blocks)
        # With few calls, a block of a single micro-batch has many of them.
        is_high = self.counts >= _BURST_TIMES * max(float(np.median(self.counts[filled])), 1.0)
        first = last = int(self.counts.argmax())
        while first > 0 and is_high[first - 1]:
            first -= 1
        while last + 1 < len(is_high) and is_high[last + 1]:
            last += 1
        share = float(self.counts[first : last + 1].sum() / self.counts.sum())
        inside = (self.blocks >= first) & (self.blocks <= last)
        others = int(((filled < first) | (filled > last)).sum())
        if not is_high[first] or share < _BURST_SHARE or others < LEAST_BLOCKS:
            return None
        times = self.calls.times[inside]
        return _Burst(inside, share, int(times.min()), max(int(np.ptp(times)), A_SECOND))

    def left(self, burst: _Burst | None) -> str:
        """About how long it takes until there are enough blocks; empty if nothing tells that yet."""
        if self.ms < _LEAST_MS:
            return ""
        # The calls of a steady load come in more and more blocks.
        more = self.ms * (LEAST_BLOCKS / self.effective - 1)
        if burst is not None:
            more = self._left_after(burst)
        return f"about {span(max(more, A_SECOND))} more at the present rate"

    def _left_after(self, burst: _Burst) -> float:
        """In ms: until the slow calls are so many that those of the burst weigh little."""
        milliseconds, outside = self.calls.milliseconds, ~burst.calls
        edge = np.quantile(milliseconds[outside], self.quantile, method="inverted_cdf")
        slow = int((milliseconds[burst.calls] >= edge).sum())
        needed = _TIMES_THE_BURST * slow / (1 - self.quantile)
        return (needed - len(outside)) * (self.ms - burst.ms) / int(outside.sum())
