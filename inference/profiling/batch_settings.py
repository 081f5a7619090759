"""Chooses the settings of a micro-batch from what was measured. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor

from millstream.inference.profiling.size_profile import SizeProfile

NEARLY_BEST = 0.97  # of the highest rate: a smaller batch that reaches it is better, and noise is of this order
BATCH_SECONDS = 70e-6
"""What a worker does for each batch beside the model's call. Measured on 2 cores: 40,000 events in batches of 1 and of 256."""
LONGEST_WAIT = 0.5  # of the target: a longer one hardly makes batches fuller, and leaves no room for a busy machine
STAGES_SHARE = 0.2  # of the target: left for decoding, encoding and writing, which are not measured here


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """The settings, and what they are expected to do."""

    profile: SizeProfile  # of the batch size that was chosen
    max_wait: float | None  # seconds; None: without a target, nothing says how long events may wait
    meets_target: bool
    reason: str  # one line

    @property
    def max_events(self) -> int:
        """Most events of a batch."""
        return self.profile.events


def choose(by_threads: Sequence[Sequence[SizeProfile]], target: float | None, reserve: float = 0.0) -> BatchSettings:
    """Choose the batch size with the highest throughput, and the window, that meet a latency target.

    An event may come just after a call began. It waits for this call, and then runs in the next one. So a size fits if two
    calls and the other stages take no longer than the target. The window is what one call and the other stages leave of it, at
    most half of the target.

    Args:
        by_threads: the sizes that were measured, for each number of threads, ascending in both; none is empty. More threads are
            chosen only if fewer can't meet the target, because more workers use the cores better.
        target: p99 of the time from when an event is read to its result, in seconds; None: only throughput counts.
        reserve: seconds of the target that the other stages need for sure, such as those between two commits of
            `exactly_once`.
    """
    if target is None:
        best = _fastest(by_threads[0])
        return BatchSettings(best, None, True, _without_target(best, by_threads[0]))
    budget = target * (1 - STAGES_SHARE) - reserve
    for place, profiles in enumerate(by_threads):
        fitting = [profile for profile in profiles if 2 * profile.p99 <= budget]
        if fitting:
            best = _fastest(fitting)
            wait = _rounded_down(min(budget - best.p99, target * LONGEST_WAIT))
            fewer = "; fewer threads miss it" if place else ""
            return BatchSettings(best, wait, True, _with_target(best, profiles, wait, target, reserve) + fewer + ".")
    quickest = min((profile for profiles in by_threads for profile in profiles), key=lambda each: each.p99)
    return BatchSettings(quickest, 0.0, False, _missed(quickest, target, reserve))


def rate_in_worker(profile: SizeProfile) -> float:
    """Events per second of calls with the worker's own work for each batch."""
    return profile.events / (profile.events / profile.rate + BATCH_SECONDS)


def _fastest(profiles: Sequence[SizeProfile]) -> SizeProfile:
    """The smallest batch size whose rate in a worker is nearly the best one."""
    most = max(map(rate_in_worker, profiles))
    return min((each for each in profiles if rate_in_worker(each) >= NEARLY_BEST * most), key=lambda each: each.events)


def _rounded_down(seconds: float) -> float:
    """Down to 0.1 ms, or to 1 ms from 10 ms on."""
    step = 1e-3 if seconds >= 0.01 else 1e-4
    return max(floor(seconds / step + 1e-9) * step, 0.0)


def milliseconds(seconds: float) -> str:
    """A duration for people, with three digits."""
    return f"{seconds * 1e3:.3g} ms" if seconds < 0.9995 else f"{seconds:.3g} s"


def _without_target(best: SizeProfile, profiles: Sequence[SizeProfile]) -> str:
    text = (
        f"{_events(best)} are the smallest batch with at least {NEARLY_BEST * 100:.0f} % of the highest throughput, counting "
        f"{milliseconds(BATCH_SECONDS)} of other work for each batch"
    )
    return f"{text}{_larger_may_be_faster(best, profiles)}."


def _with_target(best: SizeProfile, profiles: Sequence[SizeProfile], wait: float, target: float, reserve: float) -> str:
    stages = milliseconds(target * STAGES_SHARE + reserve)
    text = (
        f"two calls with {_events(best)} take {milliseconds(2 * best.p99)} (p99), and {stages} are for the other stages: "
        f"within {milliseconds(target)}. So the first event of a batch may wait {milliseconds(wait)}"
    )
    return f"{text}{_larger_may_be_faster(best, profiles)}"


def _larger_may_be_faster(best: SizeProfile, profiles: Sequence[SizeProfile]) -> str:
    largest = (
        best is profiles[-1]
        and len(profiles) > 1
        and (rate_in_worker(best) > rate_in_worker(profiles[-2]) / NEARLY_BEST)
    )
    return f"; larger batches may be faster still: --max-events {2 * best.events}" if largest else ""


def _missed(quickest: SizeProfile, target: float, reserve: float) -> str:
    stages = milliseconds(target * STAGES_SHARE + reserve)
    return (
        f"no batch size meets {milliseconds(target)}: two calls with {_events(quickest)} alone take "
        f"{milliseconds(2 * quickest.p99)} (p99), and {stages} are for the other stages. This is the quickest size."
    )


def _events(profile: SizeProfile) -> str:
    return "1 event" if profile.events == 1 else f"{profile.events:,} events"
