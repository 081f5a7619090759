"""Measures how throughput grows with the number of workers: `python -m benchmarks.workers`.

One, two and four worker processes run three workloads, in turns. In the first, the model waits as if for its own device, so
workers need little CPU. In the second (text), the model fills a core. In the third (vector), events cost so little that a single
worker needs more than one core, in addition to the broker. Results go to results/workers.json and workers.md.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.broker import real_broker
from benchmarks.errors import LeftOutError, NoBrokerError, PeerFailedError
from benchmarks.machine import machine
from benchmarks.measure import delete_topics, run_peer, split
from benchmarks.pages import write_results
from benchmarks.peers.known import millstream
from benchmarks.workloads import SEED, Workload, workload

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.peers.job import Job
    from benchmarks.peers.known import Command

RESULTS = Path(__file__).parent / "results"
WORKERS = (1, 2, 4)  # the topics have four partitions
WAIT_MS = 20
ABOUT = {
    "device": f"the vector model in Python, which waits {WAIT_MS} ms for each micro-batch, as for a device",
    "text": "a sentence embedding on the CPU: a worker fills a core",
    "vector": "events that cost 2 us: one worker uses more than a core, beside the broker",
}
EVENTS = {"device": 60_000, "text": 1_000, "vector": 600_000}
WAITING_MODEL = f'''"""The vector model, which takes as long as a device that is asked from here."""

import time

import onnxruntime as ort


class Model:
    def __init__(self, folder, device):
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = ort.InferenceSession(str(folder.parent / "1" / "model.onnx"), options)

    def predict(self, inputs):
        time.sleep({WAIT_MS / 1000})
        return {{"score": self.session.run(["score"], inputs)[0]}}
'''


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.workers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="of every count of workers (default: %(default)s)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder (default: %(default)s)")
    args = parser.parse_args()
    try:
        with real_broker() as broker, tempfile.TemporaryDirectory() as made:
            report = {
                "machine": machine(broker.kind),
                "workloads": {name: _runs(name, Path(made) / name, broker.bootstrap, args.rounds) for name in ABOUT},
            }
    except (LeftOutError, NoBrokerError, PeerFailedError) as error:
        print(error, file=sys.stderr)
        return 1
    write_results(args.results, "workers", report, markdown(report))
    return 0


def _runs(name: str, made: Path, bootstrap: str, rounds: int) -> dict[str, list[dict[str, Any]]]:
    """Number of workers -> its runs. Raises LeftOutError, PeerFailedError."""
    chosen = _workload(name, made)
    version = 2 if name == "device" else 1
    events = EVENTS[name]
    backlog = split(chosen, chosen.make(events + events // 10, SEED), events)
    found: dict[str, list[dict[str, Any]]] = {str(workers): [] for workers in WORKERS}
    for number in range(rounds):
        # The order changes with the round.
        for workers in WORKERS[:: 1 if number % 2 == 0 else -1]:
            prefix = f"workers-{os.getpid()}-{name}-{workers}-{number}"
            ready = None if workers == 1 else f"{workers}/{workers} workers"
            figures = run_peer(_command(workers, version), bootstrap, backlog, prefix, latency=False, ready=ready)
            print(f"{name}, {workers} workers: {figures.throughput}", file=sys.stderr)
            found[str(workers)].append(asdict(figures.throughput))
            delete_topics(bootstrap, prefix)
    return found


def _workload(name: str, made: Path) -> Workload:
    if name != "device":
        return replace(workload(name, made), seconds=0)
    chosen = replace(workload("vector", made), seconds=0)
    waiting = chosen.model_folder.with_name("2")
    waiting.mkdir()
    (waiting / "model.py").write_text(WAITING_MODEL)
    (waiting / "config.yaml").write_text((chosen.model_folder / "config.yaml").read_text())
    return chosen


def _command(workers: int, version: int) -> Command:
    def command(job: Job, folder: Path) -> list[str]:
        return millstream("exactly_once", workers)(replace(job, version=version), folder)

    return command


def markdown(report: Mapping[str, Any]) -> str:
    """The report for people."""
    cores = report["machine"]["cores"]
    lines = [
        "# Events a second by workers",
        "",
        "`millstream run --workers N`, exactly once with metrics on, over a backlog in a topic of four partitions: medians of "
        "the runs, which took turns. *Cores* are those that the workers kept busy, their supervisor's share included; the "
        f"broker and the reader want theirs too, of {cores} in all.",
        "",
        f"Machine: {', '.join(f'{name} {value}' for name, value in report['machine'].items())}.",
    ]
    for name, by_workers in report["workloads"].items():
        lines += [
            "",
            f"## {name}",
            "",
            f"{ABOUT[name][0].upper()}{ABOUT[name][1:]}.",
            "",
            "| workers | events/s | times one worker's | CPU us/event | cores |",
            "|---|---|---|---|---|",
            *_rows(by_workers),
        ]
    return "\n".join(lines) + "\n"


def _rows(by_workers: Mapping[str, Sequence[Mapping[str, float]]]) -> list[str]:
    alone = median(run["rate"] for run in by_workers["1"])
    rows = []
    for workers, runs in by_workers.items():
        rate, cpu_us = (median(run[figure] for run in runs) for figure in ("rate", "cpu_us"))
        cores = median(run["rate"] * run["cpu_us"] / 1e6 for run in runs)
        rows.append(f"| {workers} | {rate:,.0f} | {rate / alone:.2f} | {cpu_us:,.1f} | {cores:.2f} |")
    return rows


if __name__ == "__main__":
    sys.exit(main())
