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
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.load import Load, flights_events, vector_events, write_load, write_vector_model
from benchmarks.machine import machine
from consumers.demo.flights import example_folder
from tests.broker.choice import choose, running
from tests.broker.clients import create_topic, read_all

RESULTS = Path(__file__).parent / "results"
PARTITIONS = 4
MAX_EVENTS, MAX_WAIT_MS = 256, 5
SEED = 13
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
    peers: dict[str, Callable[[Setting, str], dict[str, Any]]] = {"millstream": _ours, "hand-written": _handwritten}
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in peers}
    for number in range(rounds):
        # Who goes first changes with the round: what the one leaves in the caches helps the other.
        for name in list(peers)[:: 1 if number % 2 == 0 else -1]:
            run = f"{setting.topic}-{name}-{number}"
            result = peers[name](setting, run)
            if result["events"] != setting.events:
                raise SystemExit(f"{name} answered {result['events']} of {setting.events} events of {setting.topic}")
            runs[name].append(result)
            print(
                f"{setting.topic} {name}: {_cpu(result):.2f} us/event, {_rate(result):,.0f} events/s", file=sys.stderr
            )
    return {
        "name": setting.workload.name,
        "about": setting.workload.describe,
        "events": setting.events,
        "runs": runs,
        "ratio_cpu": round(_median(runs["millstream"], _cpu) / _median(runs["hand-written"], _cpu), 3),
        "ratio_rate": round(_median(runs["millstream"], _rate) / _median(runs["hand-written"], _rate), 3),
    }


def _ours(setting: Setting, run: str) -> dict[str, Any]:
    workload = setting.workload
    with tempfile.TemporaryDirectory() as folder:
        pipeline = Path(folder) / "pipeline.yaml"
        pipeline.write_text(
            json.dumps(  # JSON is YAML
                {
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
                }
            )
        )
        return _run(setting, run, ["benchmarks.ours", str(pipeline)])


def _handwritten(setting: Setting, run: str) -> dict[str, Any]:
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
    arguments += [
        "--event-time",
        workload.event_time,
        "--max-events",
        str(MAX_EVENTS),
        "--max-wait-ms",
        str(MAX_WAIT_MS),
    ]
    return _run(setting, run, ["benchmarks.handwritten", *arguments])


def _run(setting: Setting, run: str, command: list[str]) -> dict[str, Any]:
    for topic in (f"{run}-out", f"{run}-dead"):
        create_topic(setting.bootstrap, topic, PARTITIONS, {})
    ended = subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, timeout=RUN_TIMEOUT, check=False
    )
    if ended.returncode:
        raise SystemExit(f"{command[0]} failed:\n{ended.stderr[-4000:]}")
    result: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    written = len(read_all(setting.bootstrap, f"{run}-out"))
    if written != setting.events:
        raise SystemExit(f"{command[0]} wrote {written} predictions for {setting.events} events")
    return result


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
        f"Medians of {len(report['workloads'][0]['runs']['millstream'])} rounds in one run; micro-batches of at most "
        f"{report['max_events']} events or {report['max_wait_ms']} ms; at least once; the broker shares the machine.",
        f"Machine: {on}.",
        "",
        "| workload | peer | CPU us/event | events/s | peak MiB |",
        "|---|---|---|---|---|",
    ]
    for workload in report["workloads"]:
        for name, runs in workload["runs"].items():
            figures = f"{_median(runs, _cpu):.2f} | {_median(runs, _rate):,.0f} | {median(r['peak_rss_mb'] for r in runs):.0f}"
            lines.append(f"| {workload['name']}, {workload['events']:,} events | {name} | {figures} |")
        lines.append(
            f"| | **Millstream / hand-written** | **{workload['ratio_cpu']:.2f}** | **{workload['ratio_rate']:.2f}** | |"
        )
    lines += ["", *(f"{workload['name']}: {workload['about']}." for workload in report["workloads"])]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
