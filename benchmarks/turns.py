"""`python -m benchmarks.turns`: measures what a change does. Peers keep running, and get backlogs in turns.

    python -m benchmarks.turns --peer millstream-exactly-once --tree . --tree ../before
    python -m benchmarks.turns --peer millstream-exactly-once --tree . --tree ../before --latency --rounds 6

A machine's speed may change by a third within seconds. `make bench` starts a peer for each run, which takes ten seconds. So a
difference of a few per cent between two runs means little. Here, a round takes only a second or two per peer, and the ratios
within a round count. So 20 rounds show differences of 5 to 10 %. Peers with a JIT compiler, such as Java's, are warmer than in
`make bench`. With `--latency`, a round is ten seconds of events at a fixed rate, after two backlogs to warm up.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import fmean, median, stdev
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.broker import real_broker
from benchmarks.environments import ROOT
from benchmarks.errors import LeftOutError, NoBrokerError, PeerFailedError
from benchmarks.load import write_held_load
from benchmarks.measure import PARTITIONS, Ends, Watch, delete_topics, job_of, latency_of, started
from benchmarks.peers.known import PEERS
from benchmarks.workloads import SEED, workload
from tests.broker.clients import create_topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.latency import Latency
    from benchmarks.load import Load
    from benchmarks.peers.job import Job
    from benchmarks.peers.known import Peer
    from benchmarks.progress import Sample
    from benchmarks.workloads import Workload

WARM_UP = 2  # rounds that don't count
SECONDS = 10  # at a fixed rate, of which `measure` leaves out the first ones


@dataclass(frozen=True, slots=True)
class Turn:
    """The figures of one backlog."""

    rate: float  # events/s
    cpu_us: float  # CPU microseconds per event


@dataclass(frozen=True, slots=True)
class Steady:
    """The figures of some seconds at a fixed rate."""

    latency: Latency
    cpu_us: float  # CPU microseconds per event


@dataclass(frozen=True, slots=True)
class Competitor:
    """A peer that keeps running."""

    name: str
    job: Job
    watch: Watch

    def take_turn(self, bootstrap: str, load: Load) -> Turn:
        """Measure one backlog, which becomes readable at once. Raises PeerFailedError."""
        commit = write_held_load(bootstrap, self.job.input, load)
        before = self.watch.look()
        commit()
        return turn_of(before, self.watch.until(sum(before.ends.values()) + len(load.values)), len(load.values))

    def keep_up(self, bootstrap: str, chosen: Workload, load: Load) -> Steady:
        """Measure events at the workload's rate. Raises TimeoutError if predictions are missing."""
        before = self.watch.look().cpu
        latency = latency_of(bootstrap, chosen, load, self.job)
        return Steady(latency, (self.watch.look().cpu - before) / len(load.values) * 1e6)


def main() -> int:
    """Run all rounds and print the table."""
    args = _arguments()
    with tempfile.TemporaryDirectory() as made, real_broker() as broker, ExitStack() as stack:
        chosen = replace(workload(args.workload, Path(made)), events=args.events)
        run = f"turns-{os.getpid()}"
        trees, peers = args.tree or [ROOT], [peer for peer in PEERS if peer.slug in args.peer]
        competitors = [
            _started(stack, peer, tree, job_of(chosen, broker.bootstrap, f"{run}-{number}"))
            for number, (tree, peer) in enumerate(product(trees, peers))
        ]
        measured = _latencies if args.latency else _turns
        print(measured(broker.bootstrap, chosen, competitors, args.rounds))
        delete_topics(broker.bootstrap, run)
    return 0


def _turns(bootstrap: str, chosen: Workload, competitors: Sequence[Competitor], rounds: int) -> str:
    load = chosen.make(chosen.events, SEED)
    turns: list[list[Turn]] = [[] for _ in competitors]
    for number, at in _order(WARM_UP + rounds, len(competitors)):
        turn = competitors[at].take_turn(bootstrap, load)
        if number >= WARM_UP:
            turns[at].append(turn)
        print(number, competitors[at].name, turn, file=sys.stderr)
    return table([competitor.name for competitor in competitors], turns)


def _latencies(bootstrap: str, chosen: Workload, competitors: Sequence[Competitor], rounds: int) -> str:
    many = chosen.rate * SECONDS
    load = chosen.make(chosen.events + rounds * many, SEED)
    for _, at in _order(WARM_UP, len(competitors)):
        competitors[at].take_turn(bootstrap, load.part(0, chosen.events))
    found: list[list[Steady]] = [[] for _ in competitors]
    for number, at in _order(rounds, len(competitors)):
        first = chosen.events + number * many  # each peer has topics of its own, but no ID twice
        found[at].append(competitors[at].keep_up(bootstrap, chosen, load.part(first, first + many)))
        print(number, competitors[at].name, found[at][-1], file=sys.stderr)
    return latency_table([competitor.name for competitor in competitors], found)


def _order(rounds: int, peers: int) -> Iterator[tuple[int, int]]:
    """The number of each round, and each peer in it. The order changes, because one may profit from what another left behind."""
    for number in range(rounds):
        for at in range(peers)[:: 1 if number % 2 == 0 else -1]:
            yield number, at


def _started(stack: ExitStack, peer: Peer, tree: Path, job: Job) -> Competitor:
    """Start a peer, which ends with the stack. Raises LeftOutError."""
    for topic in (job.input, job.output, job.dead):
        create_topic(job.bootstrap, topic, PARTITIONS, {})
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    ends = Ends(job.bootstrap, job.output)
    process = stack.enter_context(started(peer.prepare()(job, folder), folder, tree.resolve()))
    return Competitor(f"{peer.name}, {tree}", job, Watch(process, ends, folder / "log"))


def turn_of(before: Sample, samples: Sequence[Sample], events: int) -> Turn:
    """Compute the figures from the samples, up to the last sample that shows new predictions."""
    end = next(sample for sample in samples if sample.ends == samples[-1].ends)
    return Turn(events / (end.time - before.time), (end.cpu - before.cpu) / events * 1e6)


def table(names: Sequence[str], turns: Sequence[Sequence[Turn]]) -> str:
    """One Markdown row per peer: medians, and ratios to the first peer with their standard errors."""
    lines = ["| peer | events/s | / first | CPU us/event | / first |", "|---|---|---|---|---|"]
    for name, own in zip(names, turns, strict=True):
        rate, cpu = median(turn.rate for turn in own), median(turn.cpu_us for turn in own)
        rates = ratio([turn.rate for turn in own], [turn.rate for turn in turns[0]])
        cpus = ratio([turn.cpu_us for turn in own], [turn.cpu_us for turn in turns[0]])
        lines.append(f"| {name} | {rate:,.0f} | {rates} | {cpu:.2f} | {cpus} |")
    return "\n".join(lines)


def latency_table(names: Sequence[str], found: Sequence[Sequence[Steady]]) -> str:
    """One Markdown row per peer: medians of the rounds, and ratios to the first peer with their standard errors."""
    lines = [
        "| peer | p50 ms | p95 ms | p99 ms | p99 / first | CPU us/event | / first |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, own in zip(names, found, strict=True):
        p50, p95, p99 = (median(getattr(each.latency, part) for each in own) for part in ("p50", "p95", "p99"))
        tails = ratio([each.latency.p99 for each in own], [each.latency.p99 for each in found[0]])
        cpus = ratio([each.cpu_us for each in own], [each.cpu_us for each in found[0]])
        cpu = median(each.cpu_us for each in own)
        lines.append(f"| {name} | {p50:.1f} | {p95:.1f} | {p99:.1f} | {tails} | {cpu:.0f} | {cpus} |")
    return "\n".join(lines)


def ratio(own: Sequence[float], first: Sequence[float]) -> str:
    """The geometric mean of the rounds' ratios, and its standard error. Needs at least two rounds."""
    logs = np.log(np.array(own) / np.array(first)).tolist()
    return f"{np.exp(fmean(logs)):.3f} ± {stdev(logs) / len(logs) ** 0.5:.3f}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    slugs = [peer.slug for peer in PEERS if peer.part == 1]
    parser.add_argument("--peer", action="append", choices=slugs, required=True, help="once for each")
    parser.add_argument(
        "--tree", action="append", type=Path, help="whose Millstream; once for each (default: this one)"
    )
    parser.add_argument(
        "--workload", choices=["vector", "flights", "wide", "json", "nested", "nested-avro"], default="vector"
    )
    parser.add_argument("--events", type=int, default=400_000, help="of a backlog (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=20, help="(default: %(default)s)")
    parser.add_argument("--latency", action="store_true", help="measure latencies at a fixed rate, not backlogs")
    args = parser.parse_args()
    if args.rounds < 2:
        parser.error("--rounds: two at least, for the error of their mean")
    return args


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (LeftOutError, NoBrokerError, PeerFailedError) as why:
        sys.exit(str(why))
