"""The figures of one batch size."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class SizeProfile:
    """How calls with one batch size went."""

    label: str  # which of the measured executors, such as "1 thread"
    events: int  # in a call
    calls: int  # that were measured
    rate: float  # events per second: the median of the turns
    p50: float  # seconds of a call
    p99: float  # seconds of a call; with fewer than 100 calls, of the slowest one
    memory: int | None  # bytes that the process grew by at its peak; None: this system doesn't tell
    gpu_memory: int | None  # bytes that the GPU's used memory grew by; None: the model doesn't run on a GPU
    padding: float | None  # share of the items of a call that are padding; None: no input varies in length

    @property
    def us_per_event(self) -> float:
        """Microseconds of an event."""
        return 1e6 / self.rate

    @property
    def speed(self) -> dict[str, int | float]:
        """The size and its speed, for JSON."""
        return {
            "batch": self.events,
            "events_per_second": self.rate,
            "p50_ms": self.p50 * 1e3,
            "p99_ms": self.p99 * 1e3,
            "us_per_event": self.us_per_event,
        }


def figures(turns: Sequence[Sequence[float]], events: int) -> tuple[int, float, float, float]:
    """Calls, events per second, p50 and p99 of the calls' seconds.

    The rate is a median over the turns, so that a turn in which another program had the CPU doesn't count.

    Args:
        turns: the seconds of each call, by turn; at least one turn, and none is empty.
        events: in each call.
    """
    calls = np.sort(np.concatenate([np.asarray(turn, np.float64) for turn in turns]))
    rate = float(np.median([events * len(turn) / sum(turn) for turn in turns]))
    return len(calls), rate, _nearest_rank(calls, 0.5), _nearest_rank(calls, 0.99)


def _nearest_rank(ordered: "np.ndarray[tuple[int], np.dtype[np.float64]]", share: float) -> float:
    return float(ordered[max(int(np.ceil(share * len(ordered))) - 1, 0)])
