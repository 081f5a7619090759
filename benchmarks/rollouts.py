"""Simulates rollouts with the rules of `consumers/rollout`: false promotions and rollbacks, power, and time to a decision.

Run: python -m benchmarks.rollouts [--rollouts 1000] [--without-difference 10000] [--seed 1]

It writes benchmarks/results/rollouts.md and rollouts.json, and docs/rollout-rules-events.svg. It is one process, and
all streams come from the seed.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy.stats import beta

from benchmarks.rollout_methods import Measured, compare, picture, table
from benchmarks.rollout_simulation import Plan, World, simulate
from millstream.consumers.rollout.clusters import Clusters, buckets_of
from millstream.consumers.rollout.judging import MetricRule
from millstream.consumers.rollout.steps import AB_TEST, CANARY
from millstream.schemas.packed import Packed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.rollout_simulation import Found

RESULTS: Final = Path(__file__).parent / "results"
PICTURE: Final = Path(__file__).parents[1] / "docs" / "rollout-rules-events.svg"
MARGIN: Final = 0.05
CLUSTERS: Final = 20_000  # keys of a clustered world
_STEPS: Final = replace(CANARY, shares=(1000, 2500, 5000), bake_ms=3000, least_labels=200)
GUARDED: Final = Plan(
    _STEPS, MetricRule("accuracy", "higher", MARGIN, segment_margin=0.1), ratio_tolerance=0.1, events=1000, looks=60
)
SUPERIOR: Final = Plan(
    replace(AB_TEST, bake_ms=2000), MetricRule("accuracy", "higher", MARGIN, 0.0), only_accuracy=True, looks=20
)
AT_MARGIN: Final = replace(GUARDED, only_accuracy=True, ratio_tolerance=None, looks=30)


@dataclass(frozen=True, slots=True)
class Case:
    """A kind of rollout, and which of its ends would be wrong."""

    name: str
    about: str
    world: World
    plan: Plan
    wrong: tuple[str, ...]  # ends that are wrong


NO_DIFFERENCE: Final = (
    Case(
        "A/A, independent events",
        "a test for a better version, 20 looks",
        World(),
        SUPERIOR,
        ("concluded", "rolled_back"),
    ),
    Case("A/A, clustered by key", "5,000 keys", World(keys=5000), SUPERIOR, ("concluded", "rolled_back")),
    Case(
        "A/A, clustered, late labels",
        "labels count after 5 looks; of wrong answers, one in five has none",
        World(keys=5000, maturity=5, never=0.2),
        SUPERIOR,
        ("concluded", "rolled_back"),
    ),
    Case(
        "worse by exactly the margin",
        "a canary that must not be promoted, 30 looks",
        World(effect=-MARGIN),
        AT_MARGIN,
        ("promoted", "rolled_back"),
    ),
    Case(
        "worse by exactly the margin, one step",
        "as above, but one step at 50 % is enough to pass, 20 looks",
        World(effect=-MARGIN),
        replace(SUPERIOR, accuracy=MetricRule("accuracy", "higher", MARGIN)),
        ("concluded", "rolled_back"),
    ),
)
CASES: Final = (
    Case("better", "accuracy +3 points", World(effect=0.03), GUARDED, ("rolled_back",)),
    Case("equal", "", World(), GUARDED, ("rolled_back",)),
    Case(
        "equal, clustered",
        f"{CLUSTERS:,} keys; the sample ratio is not confirmed",
        World(keys=CLUSTERS),
        replace(GUARDED, ratio_tolerance=None),
        ("rolled_back",),
    ),
    Case("worse", "accuracy -10 points", World(effect=-0.1), GUARDED, ("promoted",)),
    Case("slower", "latency x 1.8", World(slowness=1.8), GUARDED, ("promoted",)),
    Case("erroring", "8 % errors instead of 0.5 %", World(errors=0.08), GUARDED, ("promoted",)),
    Case(
        "worse in one segment",
        "-20 points in one of four, +7 in the others",
        World(effect=0.07, in_segment=-0.27),
        GUARDED,
        ("promoted",),
    ),
    Case("seasonal", "equal; accuracy ±10 points in 24 looks", World(season=0.1), GUARDED, ("rolled_back",)),
    Case(
        "delayed labels, worse",
        "-10 points; labels count after 5 looks",
        World(effect=-0.1, maturity=5),
        GUARDED,
        ("promoted",),
    ),
    Case(
        "delayed labels, equal",
        "labels count after 5 looks; of wrong answers, one in five has none",
        World(maturity=5, never=0.2),
        GUARDED,
        ("rolled_back",),
    ),
    Case(
        "labels of one variant",
        "-10 points; half of the candidate's wrong answers have no label",
        World(effect=-0.1, late=0.5),
        GUARDED,
        ("promoted",),
    ),
    Case("skewed split", "half of the candidate's wrong answers are lost", World(lost=0.5), GUARDED, ("promoted",)),
)
EARLY_LABELS: Final = (
    Case(
        "labels count when they are mature",
        "after 5 looks",
        World(effect=-0.1, maturity=5),
        SUPERIOR,
        ("concluded",),
    ),
    Case(
        "labels count when they come",
        "those of the candidate's wrong answers come 5 looks later",
        World(effect=-0.1, maturity=5, early=True),
        SUPERIOR,
        ("concluded",),
    ),
)
"""The same worse candidate, to show why labels must be mature."""


def upper_bound(wrong: int, rollouts: int) -> float:
    """The largest rate that so few wrong ends allow, with 95 % confidence (Clopper and Pearson)."""
    return float(beta.ppf(0.95, wrong + 1, rollouts - wrong)) if wrong < rollouts else 1.0


def row(case: Case, found: Found, rollouts: int) -> dict[str, Any]:
    """What the report says of a case."""
    promoted = found.ends["promoted"] + found.ends["concluded"]
    wrong = sum(found.ends[end] for end in case.wrong)
    reason = found.reasons.most_common(1)
    return {
        "case": case.name,
        "about": case.about,
        "rollouts": rollouts,
        "promoted": promoted,
        "rolled_back": found.ends["rolled_back"],
        "held": found.ends["open"],
        "invalid": found.invalid,
        "wrong": wrong,
        "wrong_at_most": upper_bound(wrong, rollouts),
        "looks": float(np.median(found.looks)) if found.looks else None,
        "exposed": float(np.median(found.exposed)),
        "reason": reason[0][0] if reason else "",
        "false_promotions": promoted if "promoted" in case.wrong or "concluded" in case.wrong else None,
    }


def rows(cases: tuple[Case, ...], rollouts: int, seed: int) -> Iterator[dict[str, Any]]:
    """Run the cases."""
    for number, case in enumerate(cases):
        start = time.process_time()
        found = row(case, simulate(case.world, case.plan, rollouts, seed=seed + number), rollouts)
        print(f"{time.process_time() - start:6.1f} s CPU  {found}", flush=True)
        yield found


def throughput() -> float:
    """Events with a label that an evaluation takes per second: buckets of keys, sums of a metric, and its bounds."""
    rng = np.random.default_rng(1)
    keys = Packed.of([b"customer-%012d" % number for number in rng.integers(0, 100_000, 100_000)])
    values = (rng.random(100_000) < 0.8).astype(np.float64)
    start = time.process_time()
    state = Clusters.empty()
    for first in range(0, len(keys), 1000):
        part = slice(first, first + 1000)
        state += Clusters.of(buckets_of(keys[part]), values[part])
    assert state.variance < 1
    return len(keys) / (time.process_time() - start)


def markdown(found: dict[str, Any]) -> str:
    """The page of the results."""
    parts = [
        "# Simulated rollouts",
        "",
        f"`python -m benchmarks.rollouts --seed {found['seed']}` writes this page. "
        "[docs/rollout-rules.md](../../docs/rollout-rules.md) says what the rules are. Each rollout is decided by the real "
        "rules, at every look.",
        "",
        "## Without a difference to find",
        "",
        "A promotion or a rollback is wrong here. At most 81 of 10,000 mean: the rate is below 1 % with 95 % confidence.",
        "",
        "| case | about | rollouts | false promotions | false rollbacks | rate of both at most (95 %) |",
        "|---|---|---|---|---|---|",
        *(
            f"| {own['case']} | {own['about']} | {own['rollouts']:,} | {own['promoted']} | {own['rolled_back']} "
            f"| {own['wrong_at_most']:.2%} |"
            for own in found["no_difference"]
        ),
        "",
        "## Canaries",
        "",
        f"Steps of 10, 25 and 50 %, then 100 %. 1,000 events per look, at most {GUARDED.looks} looks. The baseline's "
        "accuracy is 80 %. The margin is 5 points, in segments 10 points. Errors may rise by 3 points, and the latency of the "
        "slowest fifth by half. Level: 1 %.",
        "",
        "| case | about | rollouts | promoted | rolled back | held | comparison invalid | median looks | events of the candidate "
        "(median) | first reason of rollbacks |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *map(_canary, found["cases"]),
        "",
        "## Labels that count too early",
        "",
        "An A/B test for a better version, with a candidate that is 10 points worse. Its wrong answers get their labels later "
        "than its right ones.",
        "",
        "| labels | about | tests | found better | found worse |",
        "|---|---|---|---|---|",
        *(
            f"| {own['case']} | {own['about']} | {own['rollouts']:,} | {own['promoted']} | {own['rolled_back']} |"
            for own in found["early_labels"]
        ),
        "",
        *through_the_evaluator(found.get("evaluated", [])),
        *of_latencies(found.get("latencies", [])),
        *table([Measured(**own) for own in found["methods"]], found["no_difference"][0]["rollouts"]),
        "",
        "![events until a decision](../../docs/rollout-rules-events.svg)",
        "",
        "## Speed",
        "",
        f"An evaluation takes {found['events_per_s'] / 1e6:.0f} million events with labels per second of CPU time for a metric: "
        "the buckets of the keys, and the sums, in batches of 1,000.",
        "",
    ]
    return "\n".join(parts)


def through_the_evaluator(cases: list[dict[str, Any]]) -> list[str]:
    """The section of `python -m benchmarks.evaluated_rollouts`."""
    if not cases:
        return []
    null = [own for own in cases if own["must_not_promote"]]
    promoted, of = (sum(own[name] for own in null) for name in ("promoted", "rollouts"))
    looks, different = (sum(own[name] for own in cases) for name in ("looks_in_all", "different"))
    return [
        "## Through the evaluator and autopilot",
        "",
        "`python -m benchmarks.evaluated_rollouts` simulates these: encoded predictions, dead letters and labels, read by the "
        "real evaluator, and decided on by the real autopilot. Steps of 25 and 50 %, then 100 %. 800 events a look, at most "
        f"28 looks. Labels count after 2 looks. {different} of {looks:,} looks differ from the pure rules on the "
        "same events.",
        "",
        f"A promotion is wrong in {of:,} of these rollouts. {promoted} were promoted: with 95 % confidence, the rate is at most "
        f"{upper_bound(promoted, of):.2%}.",
        "",
        "| case | about | rollouts | promoted | rolled back | held | median looks | events of the candidate (median) | "
        "first reason of rollbacks | false promotions at most (95 %) |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *map(_evaluated, cases),
        "",
    ]


def of_latencies(rows: list[dict[str, Any]]) -> list[str]:
    """The section of `python -m benchmarks.rollout_latencies`."""
    if not rows:
        return []
    return [
        "## Latency",
        "",
        "`python -m benchmarks.rollout_latencies` compares the slowest fifth of the events of two versions, which get half of "
        "the events each. Each event has a call of its own. The candidate may take 1.5 times as long. At most 8,000 calls of "
        "both together, and 12 looks.",
        "",
        "| latencies | about | equal: passed | median calls | 1.5 times as slow: passed | breached | twice as slow: breached | "
        "passed | median calls |",
        "|---|---|---|---|---|---|---|---|---|",
        *(
            f"| {own['latencies']} | {own['about']} | {own['passed']} of {own['equal']} | {own['calls']:,.0f} "
            f"| {own['slower_passed']} of {own['slower']} | {own['slower_breached']} | {own['twice_breached']} of {own['equal']} "
            f"| {own['twice_passed']} | {own['twice_calls']:,.0f} |"
            for own in rows
        ),
        "",
    ]


def _evaluated(own: dict[str, Any]) -> str:
    looks = "" if own["looks"] is None else f"{own['looks']:.0f}"
    ended = " | ".join(str(own[name]) for name in ("promoted", "rolled_back", "held"))
    most = f"{upper_bound(own['promoted'], own['rollouts']):.1%}" if own["must_not_promote"] else ""
    exposed = "" if own["exposed"] is None else f"{own['exposed']:,.0f}"
    start = f"| {own['case']} | {own['about']} | {own['rollouts']:,} | {ended} | {looks}"
    return f"{start} | {exposed} | {own['reason']} | {most} |"


def _canary(own: dict[str, Any]) -> str:
    looks = "" if own["looks"] is None else f"{own['looks']:.0f}"
    ended = " | ".join(str(own[name]) for name in ("promoted", "rolled_back", "held", "invalid"))
    start = f"| {own['case']} | {own['about']} | {own['rollouts']:,}"
    return f"{start} | {ended} | {looks} | {own['exposed']:,.0f} | {own['reason']} |"


def write(part: dict[str, Any]) -> None:
    """Put a part of the results into rollouts.json, and write the page anew."""
    file = RESULTS / "rollouts.json"
    found = (json.loads(file.read_text("utf-8")) if file.exists() else {}) | part
    file.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    (RESULTS / "rollouts.md").write_text(markdown(found), "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=1000, help="of each case")
    parser.add_argument("--without-difference", type=int, default=10_000, help="of each case without a difference")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    methods = compare(given.without_difference, given.seed)
    found = {
        "seed": given.seed,
        "events_per_s": throughput(),
        "methods": [asdict(own) for own in methods],
        "no_difference": list(rows(NO_DIFFERENCE, given.without_difference, given.seed)),
        "cases": list(rows(CASES, given.rollouts, 100 + given.seed)),
        "early_labels": list(rows(EARLY_LABELS, given.rollouts, 200 + given.seed)),
    }
    PICTURE.write_text(picture(methods), "utf-8")
    write(found)


if __name__ == "__main__":
    main()
