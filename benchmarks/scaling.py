"""Writes the comparison and charts of docs/scaling.md: `python -m benchmarks.scaling`. Seeded: the result is always the same."""

from __future__ import annotations

import sys

from benchmarks.pages import DOCS, write_rows
from benchmarks.scaling_simulation import LagThreshold, Load, Ours, Run, Scaler, World, loads, simulate
from millstream.consumers.demo.chart import Line, Panel, chart
from millstream.consumers.supervision.scaling import Policy

POLICY = Policy(min_workers=1, max_workers=12, catch_up=30, scale_down_after=120, in_flight=100_000)
EVERY = 10  # seconds between two points of a chart
COLORS = ("#c0392b", "#2e86c1", "#27ae60")


def scalers(world: World) -> dict[str, Scaler]:
    """The scalers that are compared. KEDA runs with the same target, and with one that is six times as strict."""
    return {
        "Millstream": Ours(POLICY),
        "lag, 30 s": LagThreshold(POLICY, POLICY.catch_up * world.rate),
        "lag, 5 s": LagThreshold(POLICY, 5 * world.rate),
    }


def main() -> int:
    """Run all simulations and write the page."""
    world = World()
    rows = [
        "| load | scaled by | s over target | oldest event, s | worker-minutes | rebalances | most workers |",
        "|---|---|---|---|---|---|---|",
    ]
    for load in loads(world):
        runs = {name: simulate(world, load, scaler) for name, scaler in scalers(world).items()}
        rows += [
            _row(f"**{load.name}**: {load.about}" if not n else "", name, run)
            for n, (name, run) in enumerate(runs.items())
        ]
        (DOCS / f"scaling-{load.name}.svg").write_text(_picture(world, load, runs), encoding="utf-8")
    write_rows("scaling.md", "scaling", rows)
    return 0


def _row(load: str, name: str, run: Run) -> str:
    return (
        f"| {load} | {name} | {run.over(POLICY.catch_up)} | {run.worst:.0f} | {run.worker_minutes:.0f} | {run.rebalances} "
        f"| {max(run.workers)} |"
    )


def _picture(world: World, load: Load, runs: dict[str, Run]) -> str:
    seconds = range(0, load.seconds, EVERY)
    minutes = [second / 60 for second in seconds]
    arrivals = next(iter(runs.values())).arrivals
    work = [arrivals[second] / world.rate for second in seconds]

    def line(name: str, color: str, values: list[int] | list[float], steps: bool) -> Line:
        # Use the maximum of each interval, so that a short peak isn't lost between two points.
        return Line(name, color, minutes, [max(values[second : second + EVERY]) for second in seconds], steps)

    colored = list(zip(runs.items(), COLORS, strict=True))
    return chart(
        f"{load.name}: {load.about}",
        [
            Panel(
                "workers, and what arrives in workers' worth",
                [*(line(name, color, run.workers, True) for (name, run), color in colored),
                 Line("arrives", "#888", minutes, work, dashed=True)],
            ),
            Panel(
                f"age of the oldest event, seconds (target {POLICY.catch_up:g})",
                [line(name, color, run.lag_seconds, False) for (name, run), color in colored],
                most=120,
            ),
        ],
        unit="min",
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
