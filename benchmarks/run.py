"""`make bench`: compares Millstream with its alternatives: same events, model and limits, in one run on a real broker.

The peers take turns, for several rounds. Results go to benchmarks/results/bench.json, bench.md and bench.svg. The workloads
`remote` and `llm` compare the executors for models on servers with bare clients of these servers (`benchmarks.remote`,
`benchmarks.llm`). A full run then also measures what shadows cost, and writes shadows.json and shadows.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import llm, remote, shadows
from benchmarks.broker import real_broker
from benchmarks.environments import pins
from benchmarks.errors import LeftOutError, NoBrokerError, PeerFailedError
from benchmarks.load import write_load
from benchmarks.machine import machine
from benchmarks.measure import PARTITIONS, Backlog, delete_topics, job_of, run_peer, split
from benchmarks.pages import write_results
from benchmarks.peers.known import JAVA, OURS, OURS_EXACTLY_ONCE, PEERS, Command, Peer
from benchmarks.profiler.run import profile
from benchmarks.report import markdown, plot
from benchmarks.workloads import NAMES, SEED, Workload, workload
from tests.broker.choice import Broker
from tests.broker.clients import create_topic

RESULTS = Path(__file__).parent / "results"
WARMING = (OURS, OURS_EXACTLY_ONCE, JAVA)
WARM_UPS = 4
ON_SERVERS = ("remote", "llm")  # workloads of models on servers, which have peers of their own
FOCUS = "vector"  # the workload of the targets: it runs in all rounds, the others in one


def main() -> int:
    """Run all and write the report, with what was left out. Returns 1 without a real broker, or if a shadow's worker failed."""
    args = _arguments()
    try:
        with tempfile.TemporaryDirectory() as made, real_broker() as broker:
            return (_profile if args.profile else _compare)(broker, Path(made), args)
    except NoBrokerError as error:
        print(error, file=sys.stderr)
        return 1


def _compare(broker: Broker, made: Path, args: argparse.Namespace) -> int:
    left_out: dict[str, str] = {}
    commands = _prepare(args.peer, left_out)
    found: list[dict[str, Any]] = []
    servers: dict[str, Any] = {}
    for name in args.workload or (*NAMES, *(() if args.peer else ON_SERVERS)):
        try:
            if name in ON_SERVERS:
                servers[name] = _on_servers(name, broker, args)
                continue
            chosen = _sized(workload(name, made), args)
        except LeftOutError as reason:
            left_out[f"workload {name}"] = str(reason)
            continue
        bench = Bench(broker.bootstrap, chosen, commands, latency=not args.no_latency)
        if commands and not found:
            bench.warm_broker()
        found.append(bench.run(args.rounds if name == FOCUS else 1))
        left_out |= bench.failed
    on = machine(broker.kind)
    if not found:  # only workloads with pages of their own
        print(*(f"{name} is left out: {why}" for name, why in left_out.items()), sep="\n", file=sys.stderr)
        return 0
    _write({"machine": on, "peers": pins(), "workloads": found, "servers": servers, "left_out": left_out}, args.results)
    if args.workload or args.peer or args.no_latency:
        return 0
    return shadows.report(broker.bootstrap, on, args.rounds, args.results)


def _on_servers(name: str, broker: Broker, args: argparse.Namespace) -> dict[str, Any]:
    """The report of the executor `kserve` or `openai` beside a bare client, which has a page of its own. Raises LeftOutError."""
    module = {"remote": remote, "llm": llm}[name]
    options = module.parser().parse_args(["--results", str(args.results)])
    found = remote.report(options) if module is remote else llm.report(options, broker)
    write_results(args.results, name, found, module.markdown(found))
    return found


class Bench:
    """Runs all peers with one workload."""

    def __init__(self, bootstrap: str, chosen: Workload, commands: dict[Peer, Command], *, latency: bool) -> None:
        self._bootstrap = bootstrap
        self._workload = chosen
        self._commands = commands
        self._latency = latency
        self._load = chosen.make(int(chosen.events * 1.1) + chosen.rate * chosen.seconds, SEED)
        self._prefix = f"bench-{os.getpid()}-{chosen.name}"
        self.failed: dict[str, str] = {}

    def warm_broker(self) -> None:
        """Run quick peers first, without measuring: a new broker compiles its code on the cores that the peers need.

        Measured: it takes 3 CPU us per event in its first run with transactions, 2 in the fourth, 0.6 from about the tenth on.
        """
        quick = [peer for peer in self._commands if peer.name in WARMING] or list(self._commands)[:1]
        for number in range(WARM_UPS):
            for peer in quick:
                self._run_peer(peer, 0, {}, f"warm-up-{number}")

    def run(self, rounds: int) -> dict[str, Any]:
        """The workload's part of the report."""
        peers: dict[str, dict[str, Any]] = {}
        limits: list[dict[str, float]] = []
        order = list(self._commands)
        for number in range(rounds):
            turns = [partial(self._run_peer, peer, number, peers) for peer in order]
            # The peers' figures are divided by the limits, so both must be measured at the same speed of the machine.
            turns.append(partial(self._run_limits, number, limits))
            # The order changes with the round, because one peer may profit from what another leaves in the caches.
            for turn in turns[:: 1 if number % 2 == 0 else -1]:
                turn()
        delete_topics(self._bootstrap, self._prefix)
        chosen = self._workload
        known = ("name", "about", "events", "rate", "seconds", "max_events", "max_wait_ms")
        return {
            **{name: getattr(chosen, name) for name in known},
            "limits": {name: median(found[name] for found in limits) for name in limits[0]},
            "limits_runs": limits,
            "peers": {peer.name: peers[peer.name] for peer in order if peer.name in peers},
        }

    def _run_peer(self, peer: Peer, number: int, peers: dict[str, dict[str, Any]], name: str = "") -> None:
        if f"{peer.name}, {self._workload.name}" in self.failed or not _takes(peer, self._workload):
            return
        if number and peer.part < 1:
            return  # this peer takes long, and its rank is already clear
        run = f"{self._prefix}-{peer.slug}-{name or number}"
        try:
            backlog = self.backlog(peer.part, kserve=peer.kserve)
            figures = run_peer(
                self._commands[peer],
                self._bootstrap,
                backlog,
                run,
                latency=self._latency and not name,
                ready=peer.ready,
            )
        except (PeerFailedError, ValueError) as error:
            self.failed[f"{peer.name}, {self._workload.name}"] = str(error)
            peers.pop(peer.name, None)
            print(f"{self._workload.name} {peer.name}: {error}", file=sys.stderr)
            return
        of_peer = peers.setdefault(peer.name, {"runs": [], "latencies": [], "latency": None})
        of_peer["runs"].append(asdict(figures.throughput))
        if figures.latency:
            of_peer["latencies"].append(asdict(figures.latency))
            in_turn = sorted(of_peer["latencies"], key=lambda latency: latency["p99"])
            of_peer["latency"] = in_turn[(len(in_turn) - 1) // 2]
        print(f"{self._workload.name} {peer.name}: {figures.throughput} {figures.latency or ''}", file=sys.stderr)

    def backlog(self, part: float, *, kserve: bool = False) -> Backlog:
        """This share of the workload's events, and a tenth as many before them to warm up."""
        events = int(self._workload.events * part)
        chosen = self._workload.as_kserve() if kserve else self._workload
        load = chosen.make(len(self._load.keys), SEED) if kserve else self._load
        return split(chosen, load, events)

    def _run_limits(self, number: int, limits: list[dict[str, float]]) -> None:
        """Run limits.py in a separate process, so that only its work is counted."""
        job = job_of(self._workload, self._bootstrap, f"{self._prefix}-limits-{number}")
        for topic in (job.input, job.output):
            create_topic(self._bootstrap, topic, PARTITIONS, {})
        events = self.backlog(1).events
        write_load(self._bootstrap, job.input, events)
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "benchmarks.limits", str(job.write(Path(folder))), str(len(events.values))]
            ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
        found: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
        limits.append(found)
        print(f"{self._workload.name} raw limits: {found}", file=sys.stderr)


def _takes(peer: Peer, chosen: Workload) -> bool:
    """Whether the peer can read the workload's events."""
    return chosen.name == FOCUS if peer.kserve else peer.nested or not chosen.nested


def _profile(broker: Broker, made: Path, args: argparse.Namespace) -> int:
    args.results.mkdir(parents=True, exist_ok=True)
    for name in [name for name in args.workload or [FOCUS] if name not in ON_SERVERS]:
        bench = Bench(broker.bootstrap, _sized(workload(name, made), args), {}, latency=False)
        for delivery in ("at_least_once", "exactly_once"):
            text = profile(broker.bootstrap, bench.backlog(1), delivery)
            (args.results / f"profile-{name}-{delivery}.md").write_text(text)
            print(text)
    return 0


def _prepare(names: list[str] | None, left_out: dict[str, str]) -> dict[Peer, Command]:
    commands: dict[Peer, Command] = {}
    for peer in PEERS:
        if names and peer.slug not in names:
            continue
        try:
            commands[peer] = peer.prepare()
        except LeftOutError as reason:
            left_out[peer.name] = str(reason)
            print(f"{peer.name} is left out: {reason}", file=sys.stderr)
    return commands


def _sized(chosen: Workload, args: argparse.Namespace) -> Workload:
    """The workload with the number of events and seconds from the command line."""
    return replace(chosen, events=max(100, int(chosen.events * args.size)), seconds=args.seconds or chosen.seconds)


def _write(report: dict[str, Any], results: Path) -> None:
    results.mkdir(parents=True, exist_ok=True)
    (results / "bench.json").write_text(json.dumps(report, indent=2) + "\n")
    text = markdown(report)
    (results / "bench.md").write_text(text)
    (results / "bench.svg").write_text(plot(report))
    print(text)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--workload", action="append", choices=(*NAMES, *ON_SERVERS), help="default: all")
    parser.add_argument("--peer", action="append", choices=[peer.slug for peer in PEERS], help="default: all")
    parser.add_argument("--rounds", type=int, default=3, help=f"of workload {FOCUS}; the others have one (default: 3)")
    parser.add_argument("--size", type=float, default=1, help="times the usual number of events (default: 1)")
    parser.add_argument("--seconds", type=int, help="of the part at a fixed rate, its 3 s of warm-up included")
    parser.add_argument("--no-latency", action="store_true", help="leave out the part at a fixed rate")
    parser.add_argument("--profile", action="store_true", help="where Millstream's CPU time goes, instead of all this")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder (default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
