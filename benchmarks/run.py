"""`make bench`: Millstream beside what a user would write instead, same events, model and limits, in one run.

The peers take turns, several rounds each, over the same topic on the same broker; the machines are noisy, so the ratio of the
medians is the figure to trust. Results go to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.latency import measure
from benchmarks.load import Load, flights_events, vector_events, write_load, write_vector_model
from benchmarks.machine import machine
from consumers.demo.flights import example_folder
from tests.broker.choice import choose, running
from tests.broker.clients import create_topic, read_all

RESULTS = Path(__file__).parent / "results"
PARTITIONS = 4
MAX_EVENTS, MAX_WAIT_MS = 256, 5
SEED = 13
VECTOR_ID_AT = 5  # a vector event's id comes first, behind the wire format's head
RUN_TIMEOUT = 300  # seconds


@dataclass(frozen=True, slots=True)
class Workload:
    """Events and the model that runs them."""

    name: str
    describe: str
    events: Callable[[int, int], Load]
    folder: Path  # holds schemas/ and models/
    schema: str  # file in schemas/
    model: str
    event_time: str


@dataclass(frozen=True, slots=True)
class Peer:
    """Something that answers events."""

    name: str
    command: Callable[[Setting, str, Path, bool], list[str]]  # setting, run, scratch folder, until idle -> arguments


@dataclass(frozen=True, slots=True)
class Setting:
    """One workload's topic on the broker."""

    workload: Workload
    bootstrap: str
    topic: str
    events: int


def main() -> int:
    """Run all and write the report; 1 where a peer lost or doubled an event."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=int, default=1000, help="events/s of the latency part; 0 leaves it out")
    parser.add_argument("--seconds", type=int, default=15, help="of the latency part, a peer")
    parser.add_argument("--workload", action="append", choices=["flights", "vector"], help="default: both")
    args = parser.parse_args()
    choice = choose(os.environ)
    if not choice.durable:
        print(
            f"The bench needs a real broker: {choice.why}. Install Java 17 and Maven, or set KAFKA_BOOTSTRAP.",
            file=sys.stderr,
        )
        return 1
    with tempfile.TemporaryDirectory() as made, running(choice) as broker:
        found = []
        latency = None
        if args.rate:
            (vector,) = _workloads(Path(made), ["vector"])
            latency = _latencies(broker.bootstrap, vector, args.rate, args.seconds)
        for workload in _workloads(Path(made), args.workload or ["flights", "vector"]):
            topic = f"bench-{workload.name}"
            create_topic(broker.bootstrap, topic, PARTITIONS, {})
            write_load(broker.bootstrap, topic, workload.events(args.events, SEED))
            found.append(_measure(Setting(workload, broker.bootstrap, topic, args.events), args.rounds))
        report = {
            "machine": machine(broker.kind),
            "max_events": MAX_EVENTS,
            "max_wait_ms": MAX_WAIT_MS,
            "workloads": found,
            "latency": latency,
        }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "bench.json").write_text(json.dumps(report, indent=2) + "\n")
    text = _markdown(report)
    (RESULTS / "bench.md").write_text(text)
    print(text)
    return 0


def _workloads(made: Path, names: list[str]) -> list[Workload]:
    write_vector_model(made, SEED)
    every = [
        Workload(
            "flights",
            "real departures, 13 fields, strings encoded in the model",
            flights_events,
            example_folder(),
            "1-flight-departure.avsc",
            "flights-delay",
            "departed_at",
        ),
        Workload(
            "vector",
            "158 bytes, 32 floats, a three-layer perceptron",
            vector_events,
            made,
            "2-vector-event.avsc",
            "vector",
            "event_time",
        ),
    ]
    return [workload for workload in every if workload.name in names]


def _measure(setting: Setting, rounds: int) -> dict[str, Any]:
    runs: dict[str, list[dict[str, Any]]] = {peer.name: [] for peer in PEERS}
    for number in range(rounds):
        # Who goes first changes with the round: what the one leaves in the caches helps the other.
        for peer in PEERS[:: 1 if number % 2 == 0 else -1]:
            result = _throughput(setting, peer, f"{setting.topic}-{_slug(peer)}-{number}")
            runs[peer.name].append(result)
            print(f"{setting.topic} {peer.name}: {_cpu(result):.2f} us/event, {_rate(result):,.0f}/s", file=sys.stderr)
    return {
        "name": setting.workload.name,
        "about": setting.workload.describe,
        "events": setting.events,
        "runs": runs,
        "ratios": {
            name: {
                "cpu": round(_median(of_peer, _cpu) / _median(runs[BASE], _cpu), 3),
                "rate": round(_median(of_peer, _rate) / _median(runs[BASE], _rate), 3),
            }
            for name, of_peer in runs.items()
        },
    }


def _slug(peer: Peer) -> str:
    return peer.name.replace(" ", "-").replace(",", "")


def _throughput(setting: Setting, peer: Peer, run: str) -> dict[str, Any]:
    """All that is in the topic, as fast as it goes."""
    _make_topics(setting, run)
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", *peer.command(setting, run, Path(scratch), True)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=RUN_TIMEOUT, check=False)
    if ended.returncode:
        raise SystemExit(f"{peer.name} failed:\n{ended.stderr[-4000:]}")
    result: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    written = len(read_all(setting.bootstrap, f"{run}-out"))
    if not result["events"] == written == setting.events:
        raise SystemExit(f"{peer.name} wrote {written} predictions for {setting.events} events")
    return result


def _latencies(bootstrap: str, workload: Workload, rate: int, seconds: int) -> dict[str, Any]:
    """Each peer's latency at a fixed rate, one after another."""
    load = workload.events(int(rate * seconds) + 1, SEED)
    found = {}
    for peer in PEERS:
        run = f"bench-latency-{_slug(peer)}"
        setting = Setting(workload, bootstrap, f"{run}-in", len(load.values))
        create_topic(bootstrap, setting.topic, PARTITIONS, {})
        _make_topics(setting, run)
        with tempfile.TemporaryDirectory() as scratch:
            process = subprocess.Popen(
                [sys.executable, "-m", *peer.command(setting, run, Path(scratch), False)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            try:
                write_load(bootstrap, setting.topic, Load(load.keys[:1], load.values[:1]))
                read_all(bootstrap, f"{run}-out", count=1, timeout=60)  # it has started
                rest = Load(load.keys[1:], load.values[1:])
                ids = [_event_id(value, VECTOR_ID_AT) for value in rest.values]
                topics = (setting.topic, f"{run}-out")
                latency = measure(bootstrap, topics, rest, rate, lambda m: _event_id(m.value() or b"", 5), ids)
            finally:
                process.terminate()
                process.wait(30)
        found[peer.name] = asdict(latency)
        print(f"latency at {rate}/s, {peer.name}: {latency}", file=sys.stderr)
    return {"rate": rate, "seconds": seconds, "workload": workload.name, "peers": found}


def _event_id(value: bytes, at: int) -> str:
    """The string at this place; its length fits one byte."""
    length = value[at] >> 1
    return value[at + 1 : at + 1 + length].decode()


def _make_topics(setting: Setting, run: str) -> None:
    for topic in (f"{run}-out", f"{run}-dead"):
        create_topic(setting.bootstrap, topic, PARTITIONS, {})


def _millstream(delivery: str) -> Callable[[Setting, str, Path, bool], list[str]]:
    def command(setting: Setting, run: str, scratch: Path, until_idle: bool) -> list[str]:
        workload = setting.workload
        pipeline = {
            "name": run,
            "kafka": {"bootstrap": setting.bootstrap},
            "schemas": {"directory": str(workload.folder / "schemas")},
            "input": {
                "topics": [setting.topic],
                "format": "avro",
                "schema": workload.schema.partition("-")[2].removesuffix(".avsc"),
                "event_id": "id",
                "event_time": workload.event_time,
            },
            "output": {"topic": f"{run}-out"},
            "dead_letters": {"topic": f"{run}-dead"},
            "model": {"name": workload.model, "version": 1, "repository": str(workload.folder / "models")},
            "batch": {"max_events": MAX_EVENTS, "max_wait": f"{MAX_WAIT_MS}ms"},
            "delivery": delivery,
        }
        (scratch / "pipeline.yaml").write_text(json.dumps(pipeline))  # JSON is YAML
        return [
            "benchmarks.ours" if until_idle else "millstream",
            *([] if until_idle else ["work"]),
            str(scratch / "pipeline.yaml"),
        ]

    return command


def _handwritten(setting: Setting, run: str, _scratch: Path, until_idle: bool) -> list[str]:
    workload = setting.workload
    arguments = [
        "--bootstrap",
        setting.bootstrap,
        "--in",
        setting.topic,
        "--out",
        f"{run}-out",
        "--dead",
        f"{run}-dead",
    ]
    arguments += ["--group", run, "--schema", str(workload.folder / "schemas" / workload.schema)]
    arguments += ["--model-dir", str(workload.folder / "models" / workload.model / "1")]
    arguments += ["--event-time", workload.event_time]
    arguments += ["--max-events", str(MAX_EVENTS), "--max-wait-ms", str(MAX_WAIT_MS)]
    return ["benchmarks.handwritten", *arguments, "--until-idle", "3" if until_idle else "600"]


BASE = "hand-written"
PEERS = [
    Peer("Millstream", _millstream("at_least_once")),
    Peer("Millstream, exactly once", _millstream("exactly_once")),
    Peer(BASE, _handwritten),
]


def _cpu(result: dict[str, Any]) -> float:
    return float(result["cpu_seconds"] / result["events"] * 1e6)


def _rate(result: dict[str, Any]) -> float:
    return float(result["events"] / result["wall_seconds"])


def _median(runs: list[dict[str, Any]], figure: Callable[[dict[str, Any]], float]) -> float:
    return median(figure(run) for run in runs)


def _markdown(report: dict[str, Any]) -> str:
    on = ", ".join(f"{name} {value}" for name, value in report["machine"].items())
    lines = [
        "# Bench",
        "",
        f"Medians of {len(report['workloads'][0]['runs'][BASE])} rounds in one run; micro-batches of at most "
        f"{report['max_events']} events or {report['max_wait_ms']} ms. The broker shares the machine, and the machine is noisy: "
        f"the ratios (to {BASE}, which is at least once) are what counts.",
        f"Machine: {on}.",
        "",
        "| workload | peer | CPU us/event | ratio | events/s | ratio | peak MiB |",
        "|---|---|---|---|---|---|---|",
    ]
    for workload in report["workloads"]:
        for name, runs in workload["runs"].items():
            ratio, peak = workload["ratios"][name], median(run["peak_rss_mb"] for run in runs)
            lines.append(
                f"| {workload['name']} | {name} | {_median(runs, _cpu):.2f} | {ratio['cpu']:.2f} "
                f"| {_median(runs, _rate):,.0f} | {ratio['rate']:.2f} | {peak:.0f} |"
            )
    lines += ["", *(f"{w['name']}: {w['events']:,} events; {w['about']}." for w in report["workloads"]), ""]
    latency = report.get("latency")
    if latency:
        lines += [
            f"End to end at {latency['rate']} events/s ({latency['workload']}, open loop, {latency['seconds']} s; from when "
            f"an event was due until a read-committed reader has its prediction):",
            "",
            "| peer | p50 ms | p95 ms | p99 ms | most ms |",
            "|---|---|---|---|---|",
            *(
                f"| {name} | {p['p50']} | {p['p95']} | {p['p99']} | {p['most']} |"
                for name, p in latency["peers"].items()
            ),
        ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
