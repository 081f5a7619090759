"""Measures what a shadow costs the primary in the same worker: `python -m benchmarks.shadows`, also part of `make bench`.

Runs of one worker take turns: without a shadow, and with shadows that see every event (`sample_rate: 1`). Results go to
benchmarks/results/shadows.json and shadows.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from timeit import repeat
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime as ort

from benchmarks.broker import real_broker
from benchmarks.errors import NoBrokerError, PeerFailedError
from benchmarks.load import SMALL, VECTOR_LENGTH, vector_model
from benchmarks.machine import machine
from benchmarks.measure import PARTITIONS, Backlog, delete_topics, run_peer, split
from benchmarks.pages import write_results
from benchmarks.peers.known import millstream
from benchmarks.workloads import SEED, Workload, workload
from tests.broker.clients import create_topic, read_all

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.peers.job import Job

RESULTS = Path(__file__).parent / "results"
EVENTS = 60_000  # events of the backlog
SECONDS = 6  # seconds at a fixed rate, including the warm-up
DEEP = (
    64,
) * 180  # hidden layers, where the primary has two: ten times its time with the fewest events of a batch, too
BATCHES = (5, 64, 256)  # events per batch; at the fixed rate, about 5 arrive within 5 ms
CALLS = 100  # calls of a model in one time measurement; the best of REPEATS measurements counts
REPEATS = 5


@dataclass(frozen=True, slots=True)
class Variant:
    """The shadow that runs next to the primary, if any."""

    name: str
    version: int | None  # of the shadow
    about: str = ""


VARIANTS = (
    Variant("no shadow", None),
    Variant("same cost", 2, "a perceptron like the primary's"),
    Variant("slow", 3, f"a perceptron of {len(DEEP)} layers in place of 2"),
)


def main() -> int:
    """Run all and write the report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shadows", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="of every variant (default: 3)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder (default: %(default)s)")
    args = parser.parse_args()
    try:
        with real_broker() as broker:
            return report(broker.bootstrap, machine(broker.kind), args.rounds, args.results)
    except NoBrokerError as error:
        print(error, file=sys.stderr)
        return 1


def report(bootstrap: str, on: Mapping[str, Any], rounds: int, results: Path) -> int:
    """Measure on this machine and write; 1 where a worker failed."""
    try:
        found = {"machine": dict(on), **run(bootstrap, rounds)}
    except PeerFailedError as error:
        print(f"shadows: {error}", file=sys.stderr)
        return 1
    write_results(results, "shadows", found, markdown(found))
    return 0


def run(bootstrap: str, rounds: int) -> dict[str, Any]:
    """The figures of all variants. Raises PeerFailedError."""
    with tempfile.TemporaryDirectory() as made:
        chosen = replace(workload("vector", Path(made)), events=EVENTS, seconds=SECONDS)
        _write_shadows(chosen)
        load = chosen.make(EVENTS + EVENTS // 10 + chosen.rate * SECONDS, SEED)
        backlog = split(chosen, load, EVENTS)
        prefix = f"shadows-{os.getpid()}"
        runs: dict[str, list[dict[str, Any]]] = {variant.name: [] for variant in VARIANTS}
        for number in range(rounds):
            # The order changes with the round.
            for variant in VARIANTS[:: 1 if number % 2 == 0 else -1]:
                found = _run_one(bootstrap, f"{prefix}-{variant.version}-{number}", variant, backlog)
                print(f"{variant.name}: {found}", file=sys.stderr)
                runs[variant.name].append(found)
        delete_topics(bootstrap, prefix)
        return {
            "events": EVENTS,
            "rate": chosen.rate,
            "seconds": SECONDS,
            "model_us": _model_times(chosen),
            "variants": [{**asdict(variant), "runs": runs[variant.name]} for variant in VARIANTS],
        }


def _write_shadows(chosen: Workload) -> None:
    """Write versions 2 and 3 of the model, next to the primary's."""
    for variant, hidden in zip(VARIANTS[1:], (SMALL, DEEP), strict=True):
        folder = chosen.model_folder.with_name(str(variant.version))
        folder.mkdir()
        onnx.save(vector_model(SEED + 1, VECTOR_LENGTH, hidden), str(folder / "model.onnx"))
        (folder / "config.yaml").write_text((chosen.model_folder / "config.yaml").read_text())


def _run_one(bootstrap: str, run: str, variant: Variant, backlog: Backlog) -> dict[str, Any]:
    """A worker from its start to its end."""
    for topic in (comparisons := f"{run}-comparisons", f"{run}-evaluations"):
        create_topic(bootstrap, topic, PARTITIONS, {})
    figures = run_peer(partial(_command, variant), bootstrap, backlog, run, latency=True)
    seen = {(message.key() or b"").decode() for message in read_all(bootstrap, comparisons)}
    id_of = backlog.workload.id_of
    compared = {
        name: sum(id_of(value) in seen for value in load.values)
        for name, load in (("backlog", backlog.events), ("fixed rate", backlog.later))
    }
    return {
        **asdict(figures.throughput),
        "latency": asdict(figures.latency) if figures.latency else None,
        "compared": compared if variant.version else None,
    }


def _command(variant: Variant, job: Job, folder: Path) -> list[str]:
    command = millstream("at_least_once")(job, folder)
    if variant.version:
        file = folder / "pipeline.yaml"
        pipeline = json.loads(file.read_text()) | {"shadows": [{"version": variant.version}]}
        file.write_text(json.dumps(pipeline))
    return command


def _model_times(chosen: Workload) -> dict[str, dict[str, float]]:
    """Variant (the primary's model if it has no shadow) -> events of a batch -> best time of its model in microseconds."""
    times: dict[str, dict[str, float]] = {}
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    for variant in VARIANTS:
        folder = chosen.model_folder.with_name(str(variant.version or 1))
        session = ort.InferenceSession(str(folder / "model.onnx"), options)
        inputs = {str(events): {"x": np.zeros((events, VECTOR_LENGTH), np.float32)} for events in BATCHES}
        times[variant.name] = {
            events: round(min(repeat(partial(session.run, None, x), number=CALLS, repeat=REPEATS)) / CALLS * 1e6, 1)
            for events, x in inputs.items()
        }
    return times


def markdown(found: Mapping[str, Any]) -> str:
    """The report for people."""
    rounds = len(found["variants"][0]["runs"])
    lines = [
        "# What a shadow costs the primary",
        "",
        "One worker over the vector workload, at least once, alone and with a shadow in it that is offered every event "
        f"(`sample_rate: 1`, the usual `max_load` of half a core). {rounds} rounds in turns, a new process each: the median, and "
        "behind it the least and most, which say how much of a difference is noise. The broker, the load and the reader share "
        "the machine's cores with the worker.",
        "",
        f"Machine: {', '.join(f'{name} {value}' for name, value in found['machine'].items())}.",
        "",
        f"## At {found['rate']:,} events/s",
        "",
        "Open loop, milliseconds from when an event was due until its prediction is there.",
        "",
        "| shadow | p50 | p95 | p99 | compared | left out |",
        "|---|---|---|---|---|---|",
        *(_fixed_rate(variant, found["rate"] * found["seconds"]) for variant in found["variants"]),
        "",
        f"## Over a backlog of {found['events']:,} events",
        "",
        "The worker's own CPU time, its shadow's too, until all predictions are there. Events that a shadow leaves out are "
        "counted (`millstream_shadow_skipped_events_total`), and cost nothing.",
        "",
        "| shadow | events/s | CPU us/event | compared | left out |",
        "|---|---|---|---|---|",
        *(_backlog_row(variant, found["events"]) for variant in found["variants"]),
        "",
        "## The models",
        "",
        "Microseconds of a call with so many events, on one thread, by itself; how many times the primary's.",
        "",
        f"| model | {' | '.join(f'{events}' for events in BATCHES)} |",
        f"|---|{'---|' * len(BATCHES)}",
        *(_model_row(variant, found) for variant in found["variants"]),
    ]
    return "\n".join(lines) + "\n"


def _fixed_rate(variant: Mapping[str, Any], events: int) -> str:
    waits = [run["latency"] for run in variant["runs"] if run["latency"]]
    cells = (
        [_spread([wait[name] for wait in waits]) for name in ("p50", "p95", "p99")] if waits else ["not kept up"] * 3
    )
    return f"| {_title(variant)} | {' | '.join(cells)} | {_compared(variant, 'fixed rate', events)} |"


def _backlog_row(variant: Mapping[str, Any], events: int) -> str:
    cells = [_spread([run[name] for run in variant["runs"]]) for name in ("rate", "cpu_us")]
    return f"| {_title(variant)} | {' | '.join(cells)} | {_compared(variant, 'backlog', events)} |"


def _compared(variant: Mapping[str, Any], part: str, events: int) -> str:
    if variant["version"] is None:
        return "| "
    compared = median(run["compared"][part] for run in variant["runs"])
    return f"{compared:,.0f} | {1 - compared / events:.0%}"


def _model_row(variant: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    times = found["model_us"]
    base, mine = (times[name] for name in (found["variants"][0]["name"], variant["name"]))
    cells = [f"{mine[events]:,.0f} ({mine[events] / base[events]:.1f})" for events in mine]
    return f"| {_title(variant) if variant['version'] else 'the primary'} | {' | '.join(cells)} |"


def _title(variant: Mapping[str, Any]) -> str:
    return f"{variant['name']}: {variant['about']}" if variant["about"] else str(variant["name"])


def _spread(values: Sequence[float]) -> str:
    """The median, the lowest and the highest value."""
    digits = 0 if min(values) >= 100 else 1
    low, middle, high = (f"{value:,.{digits}f}" for value in (min(values), median(values), max(values)))
    return f"{middle} ({low}-{high})"


if __name__ == "__main__":
    sys.exit(main())
