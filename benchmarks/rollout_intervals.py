"""Compares our intervals with those of gbstats, the statistics of GrowthBook, on the same events.

Run: python -m benchmarks.rollout_intervals

gbstats needs older versions of numpy and pandas, so uv runs it in an environment of its own.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any, Final

import numpy as np

from millstream.consumers.rollout.boundaries import two_sided
from millstream.consumers.rollout.clusters import Clusters, unpaired

CASES: Final = 500
LEVEL: Final = 0.05
TUNED_AT: Final = 5000.0  # events at which gbstats makes its interval tightest
GBSTATS: Final = """
import json, sys
from gbstats.frequentist.tests import SequentialConfig, SequentialTwoSidedTTest
from gbstats.models.statistics import RatioStatistic, SampleMeanStatistic

found = []
for case in json.load(sys.stdin):
    sides = []
    for side in case:
        if len(side) == 3:
            sides.append(SampleMeanStatistic(n=side[0], sum=side[1], sum_squares=side[2]))
        else:
            n, m, mm, d, dd, md = side
            sides.append(RatioStatistic(
                n=n,
                m_statistic=SampleMeanStatistic(n=n, sum=m, sum_squares=mm),
                d_statistic=SampleMeanStatistic(n=n, sum=d, sum_squares=dd),
                m_d_sum_of_products=md,
            ))
    test = SequentialTwoSidedTTest(*sides, SequentialConfig(difference_type="absolute", alpha=0.05))
    low, high = test.confidence_interval
    found.append([test.point_estimate, (high - low) / 2])
print(json.dumps(found))
"""


def independent(rng: np.random.Generator) -> tuple[list[list[float]], tuple[Clusters, Clusters]]:
    """Two variants whose events are independent: gbstats' sums, and ours."""
    sums, sides = [], []
    for _ in range(2):
        values = rng.gamma(rng.uniform(0.5, 5), size=rng.integers(100, 5000))
        sums.append([len(values), values.sum(), np.square(values).sum()])
        sides.append(Clusters.of(np.arange(len(values)), values, len(values)))
    return sums, (sides[0], sides[1])


def clustered(rng: np.random.Generator) -> tuple[list[list[float]], tuple[Clusters, Clusters]]:
    """Two variants with keys of many events: gbstats' ratio of two sums over keys (delta method), and our jackknife."""
    sums, sides = [], []
    for _ in range(2):
        keys = int(rng.integers(200, 2000))
        counts = rng.geometric(0.2, keys).astype(np.float64)
        totals = counts * rng.normal(1, 0.3, keys) + np.sqrt(counts) * rng.normal(0, 1, keys)
        squares = [np.square(totals).sum(), np.square(counts).sum(), (totals * counts).sum()]
        sums.append([keys, totals.sum(), squares[0], counts.sum(), squares[1], squares[2]])
        sides.append(Clusters(counts, totals))
    return sums, (sides[0], sides[1])


def ours(sides: tuple[Clusters, Clusters], units: float) -> tuple[float, float]:
    """The difference and the half-width of its interval, with the mixture that gbstats chooses for so many units."""
    found = unpaired(*sides)
    precision = (-2 * np.log(LEVEL) + np.log(1 - 2 * np.log(LEVEL))) / TUNED_AT
    scale = float(np.sqrt(precision * found.variance * units))
    return float(found.estimate), float(two_sided(found.variance, scale, LEVEL))


def measured(seed: int = 1) -> dict[str, Any]:
    """The largest relative differences of the half-widths, and of the estimates in half-widths, by kind of events."""
    result: dict[str, Any] = {}
    for name, make in (("independent events", independent), ("events clustered by key", clustered)):
        rng = np.random.default_rng(seed)
        sums, sides = zip(*(make(rng) for _ in range(CASES)), strict=True)
        command = [
            "uv",
            "run",
            "--no-project",
            "--quiet",
            "--python",
            "3.11",
            "--with",
            "gbstats==0.8.0",
            "python",
            "-c",
        ]
        done = subprocess.run([*command, GBSTATS], input=json.dumps(sums), capture_output=True, text=True, check=True)
        theirs = np.array(json.loads(done.stdout))
        own = np.array([ours(pair, sum(side[0] for side in given)) for pair, given in zip(sides, sums, strict=True)])
        result[name] = {
            "cases": CASES,
            "estimate": float((np.abs(own[:, 0] - theirs[:, 0]) / theirs[:, 1]).max()),
            "half-width": float(np.abs(own[:, 1] / theirs[:, 1] - 1).max()),
            "half-width, median": float(np.median(own[:, 1] / theirs[:, 1])),
        }
    return result


def main() -> None:
    print(
        "| events | cases | largest difference of the estimates, in half-widths | of the half-widths | median ratio |"
    )
    print("|---|---|---|---|---|")
    for name, own in measured().items():
        print(
            f"| {name} | {own['cases']} | {own['estimate']:.1e} | {own['half-width']:.1e} | {own['half-width, median']:.5f} |"
        )


if __name__ == "__main__":
    main()
