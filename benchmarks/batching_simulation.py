"""Compares the batching policy with fixed windows, in simulated time. `python -m benchmarks.batching_simulation` writes the
table and pictures of docs/batching.md. It uses a fixed seed, so the result is always the same."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
import numpy.typing as npt

from benchmarks.pages import DOCS, write_rows
from millstream.consumers.demo.chart import Line, Panel, chart
from millstream.consumers.flow.batch_window import BatchWindow

Floats = npt.NDArray[np.float64]
EVERY = 0.25  # seconds between two points of a chart
PICTURED = ("steps", "bunches")
COLORS = ("#888", "#e67e22", "#c0392b", "#2e86c1", "#27ae60")


@dataclass(frozen=True, slots=True)
class Model:
    """One executor: how many seconds a batch takes."""

    batch: float = 0.002
    event: float = 0.00001
    noise: float = 0.1  # standard deviation of the logarithm
    max_events: int = 256
    seed: int = 1


class Waiting(Protocol):
    """Decides how long a batch stays open, like `consumers.flow.batch_window.BatchWindow`."""

    @property
    def length(self) -> float: ...  # noqa: D102
    def note(self, arrived: float, records: int) -> None: ...  # noqa: D102
    def report(self, seconds: float) -> None: ...  # noqa: D102


class Fixed:
    """Always the same window, in seconds."""

    def __init__(self, length: float) -> None:
        self.length = length

    def note(self, arrived: float, records: int) -> None:
        """Nothing is learnt."""

    def report(self, seconds: float) -> None:
        """Nothing is learnt."""


POLICIES: dict[str, Callable[[], Waiting]] = {
    "fixed 0 ms": partial(Fixed, 0.0),
    "fixed 5 ms": partial(Fixed, 0.005),
    "fixed 20 ms": partial(Fixed, 0.02),
    "max_wait 20 ms": partial(BatchWindow, 0.02),
    "and target_p99 15 ms": partial(BatchWindow, 0.02, 0.015),
}


@dataclass(frozen=True, slots=True)
class Load:
    """The arriving events."""

    name: str
    about: str
    times: Floats  # seconds, ascending


@dataclass(frozen=True, slots=True)
class Run:
    """The result of a simulation."""

    latencies: Floats  # latency of each event, seconds
    starts: Floats  # start of each batch
    sizes: Floats
    busy: Floats  # seconds that each batch took in the model

    @property
    def busy_share(self) -> float:
        """Of the time until the last batch ended."""
        return float(self.busy.sum() / (self.starts[-1] + self.busy[-1]))

    def quantile(self, share: float) -> float:
        """The quantile of the latency for this share of the events, seconds."""
        return float(np.quantile(self.latencies, share))


def simulate(model: Model, times: Floats, waiting: Waiting) -> Run:
    """Run all events through one executor, which runs one batch at a time.

    A batch starts when the executor is free and the batch is full, or has been open long enough.
    """
    noise = np.exp(np.random.default_rng(model.seed).normal(0, model.noise, len(times)))
    arrivals = times.tolist()
    polls = zip(*(column.tolist() for column in np.unique(times, return_counts=True)), strict=True)
    batches: list[tuple[float, int, float]] = []
    head = came = 0
    free = 0.0
    arrived, records = next(polls)
    while head < len(arrivals):
        start = max(free, _closed(arrivals, head, came, model, waiting))
        while arrived <= start:
            waiting.note(arrived, records)
            came += records
            arrived, records = next(polls, (float("inf"), 0))
            start = max(free, _closed(arrivals, head, came, model, waiting))
        size = min(came - head, model.max_events)
        took = (model.batch + model.event * size) * float(noise[len(batches)])
        batches.append((start, size, took))
        waiting.report(took)
        free = start + took
        head += size
    starts, sizes, busy = (np.array(column, np.float64) for column in zip(*batches, strict=True))
    return Run(np.repeat(starts + busy, sizes.astype(int)) - times, starts, sizes, busy)


def _closed(arrivals: list[float], head: int, came: int, model: Model, waiting: Waiting) -> float:
    """The time at which the batch that starts with event `head` closes, as far as known; never if no event waits."""
    if came == head:
        return float("inf")
    if came - head >= model.max_events:
        return arrivals[head + model.max_events - 1]
    return arrivals[head] + waiting.length


def poisson(rate: float, seconds: float, *, begin: float = 0.0, seed: int = 1) -> Floats:
    """Events that arrive independently of each other."""
    random = np.random.default_rng(seed)
    return begin + np.sort(random.uniform(0, seconds, random.poisson(rate * seconds)))


def bunches(size: int, every: float, seconds: float) -> Floats:
    """Events that arrive in groups, as from a producer that sends groups: in four partitions, within a millisecond."""
    pieces = np.arange(0, seconds, every)[:, None] + np.arange(4) * 0.0003
    return np.repeat(pieces.reshape(-1), size // 4)


def loads() -> list[Load]:
    """The policies that are compared."""
    rates = ((10, 60), (100, 20), (1000, 10), (10_000, 10), (40_000, 5))
    phases = ((20, 0), (2000, 4), (20_000, 8), (200, 12))
    return [
        *(Load(f"{rate:,}/s", "", poisson(rate, seconds)) for rate, seconds in rates),
        Load("bunches", "200 events at once, 20 times a second", bunches(200, 0.05, 10)),
        Load(
            "steps",
            "20, 2,000, 20,000 and 200 events/s, 4 s each",
            np.concatenate([poisson(rate, 4, begin=begin) for rate, begin in phases]),
        ),
    ]


def main() -> int:
    """Run all simulations and write the page."""
    rows = [
        "| load | window | p50, ms | p99, ms | events per batch | executor busy |",
        "|---|---|---|---|---|---|",
    ]
    for load in loads():
        runs = {name: simulate(Model(), load.times, make()) for name, make in POLICIES.items()}
        about = f"**{load.name}**" + (f": {load.about}" if load.about else "")
        rows += [_row(about if not n else "", name, run) for n, (name, run) in enumerate(runs.items())]
        if load.name in PICTURED:
            (DOCS / f"batching-{load.name}.svg").write_text(_picture(load, runs), encoding="utf-8")
    write_rows("batching.md", "batching_simulation", rows)
    return 0


def _row(load: str, name: str, run: Run) -> str:
    p50, p99 = (1000 * run.quantile(share) for share in (0.5, 0.99))
    return f"| {load} | {name} | {p50:.1f} | {p99:.1f} | {run.sizes.mean():.1f} | {run.busy_share:.0%} |"


def _picture(load: Load, runs: dict[str, Run]) -> str:
    edges = np.arange(0, load.times[-1] + EVERY, EVERY)
    colored = list(zip(runs.items(), COLORS, strict=True))

    def panel(title: str, most: float | None, of: Callable[[Run, int], float]) -> Panel:
        points = range(len(edges) - 1)
        return Panel(
            title,
            [
                Line(name, color, edges[1:].tolist(), [of(run, at) for at in points], steps=False)
                for (name, run), color in colored
            ],
            most,
        )

    def p99(run: Run, at: int) -> float:
        inside = run.latencies[(load.times >= edges[at]) & (load.times < edges[at + 1])]
        return 1000 * float(np.quantile(inside, 0.99)) if len(inside) else 0.0

    def busy(run: Run, at: int) -> float:
        inside = run.busy[(run.starts >= edges[at]) & (run.starts < edges[at + 1])]
        return min(100 * float(inside.sum()) / EVERY, 100.0)

    return chart(f"{load.name}: {load.about}", [panel("p99, ms", None, p99), panel("executor busy, %", 100, busy)])


if __name__ == "__main__":
    sys.exit(main())
