"""How many calls of a model it takes to compare the latencies of two versions, and how often that goes wrong.

Run: python -m benchmarks.rollout_latencies [--equal 100] [--slower 400]

It puts its part into benchmarks/results/rollouts.json and rollouts.md. All draws come from seeds.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from benchmarks.rollouts import write
from millstream.consumers.rollout.judging import Levels, MetricRule, bounds_of_difference, signs
from millstream.consumers.rollout.latencies import LEAST_BLOCKS, blocks_of, compared, slowest

if TYPE_CHECKING:
    from millstream.schemas.arrays import Floats

QUANTILE: Final = 0.8
AT_MOST: Final = 1.5
CALLS: Final = 8000  # of both versions together
LOOKS: Final = (100, 200, 300, 500, 800, 1200, 1700, 2300, 3000, 4000, 5500, CALLS)
LEVELS: Final = Levels.of(0.01, 0.01, guards=4)  # with accuracy, errors, dead letters and latency
_RULE: Final = MetricRule("latency", "lower", float(np.log(AT_MOST)), least_clusters=LEAST_BLOCKS)

Draw = Callable[[np.random.Generator, int], "Floats"]


def even(rng: np.random.Generator, count: int) -> Floats:
    """Log-normal."""
    return np.exp(0.5 * rng.standard_normal(count))


def heavy(rng: np.random.Generator, count: int) -> Floats:
    """Pareto's distribution without a mean."""
    found: Floats = 1 / (1 - rng.random(count))
    return found


def waiting(rng: np.random.Generator, count: int) -> Floats:
    """One call in twenty waits for the processor. The 95th percentile lies between the two kinds."""
    return np.exp(0.1 * rng.standard_normal(count)) * np.where(rng.random(count) < 0.05, 12, 1)


def busy(rng: np.random.Generator, count: int) -> Floats:
    """While the machine is busy, for 200 calls of 1,200, three calls in ten wait."""
    chance = np.where((np.arange(count) + rng.integers(1200)) % 1200 < 200, 0.3, 0.01)
    return np.exp(0.3 * rng.standard_normal(count)) + (rng.random(count) < chance) * rng.exponential(5, count)


DRAWS: Final[dict[str, tuple[Draw, str]]] = {
    "even": (even, "log-normal, sigma 0.5"),
    "heavy tail": (heavy, "Pareto, alpha 1"),
    "waiting": (waiting, "one call in twenty takes 12 times as long"),
    "busy at times": (busy, "three calls in ten wait while the machine is busy, one in a hundred at other times"),
}


def decided(draw: Draw, slower: float, seed: int) -> tuple[int, int]:
    """At the first look that decides: 1 if the candidate passes, -1 if it is breached; 0: none decides. And the calls so far."""
    rng = np.random.default_rng(seed)
    candidate = rng.random(CALLS) < 0.5
    times, ms = np.arange(CALLS), draw(rng, CALLS) * np.where(candidate, slower, 1)
    for calls in LOOKS:
        sides = [np.flatnonzero(candidate[:calls] == own) for own in (False, True)]
        blocks = blocks_of(*(times[own] for own in sides))
        found = compared(*(slowest(each, ms[own], QUANTILE) for each, own in zip(blocks, sides, strict=True)))
        if sign := int(signs(_RULE, bounds_of_difference(_RULE, found, LEVELS))):
            return sign, calls
    return 0, CALLS


def measured(name: str, equal: int, slower: int) -> dict[str, Any]:
    """A row of the report. `equal`, `slower`: so many comparisons."""
    draw, about = DRAWS[name]
    same = [decided(draw, 1.0, seed) for seed in range(equal)]
    margin = [decided(draw, AT_MOST, seed)[0] for seed in range(slower)]
    twice = [decided(draw, 2.0, seed) for seed in range(equal)]
    return {
        "latencies": name,
        "about": about,
        "equal": equal,
        "passed": sum(sign > 0 for sign, _ in same),
        "calls": float(np.median([calls for _, calls in same])),
        "slower": slower,
        "slower_passed": margin.count(1),
        "slower_breached": margin.count(-1),
        "twice_breached": sum(sign < 0 for sign, _ in twice),
        "twice_passed": sum(sign > 0 for sign, _ in twice),
        "twice_calls": float(np.median([calls for _, calls in twice])),
    }


def main() -> None:
    """Measure all and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--equal", type=int, default=100, help="comparisons of equal versions, and of one twice as slow"
    )
    parser.add_argument("--slower", type=int, default=400, help="comparisons with a version that is 1.5 times as slow")
    given = parser.parse_args()
    found = []
    for name in DRAWS:
        found.append(measured(name, given.equal, given.slower))
        print(found[-1], flush=True)
    write({"latencies": found})


if __name__ == "__main__":
    main()
