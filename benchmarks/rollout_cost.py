"""Measures what a rollout costs a worker: `python -m benchmarks.rollout_cost`.

One worker answers backlogs of the vector workload. In turns, one version answers all events, and two versions share them. What
counts is the CPU time of the worker's process per event. The parts of that are measured as well, with models that do nothing.
Results go to results/rollout-cost.json and rollout-cost.md.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.broker import real_broker
from benchmarks.errors import NoBrokerError, PeerFailedError
from benchmarks.load import write_vector_model
from benchmarks.machine import machine
from benchmarks.pages import write_results
from benchmarks.rollout_parts import measured_parts
from tests.consumers.processes import Worker
from tests.consumers.serving.rollout_scene import RolloutScene, is_loaded, until_revision

if TYPE_CHECKING:
    from tests.broker.choice import Broker

RESULTS = Path(__file__).parent / "results"
SPLITS = {"one version": (100, 0), "two, 50 %": (50, 50), "two, 1 %": (99, 1)}
LIMIT = 1.05  # two live versions cost at most so many times the CPU of one, besides the second model's own time
ROUTE_LIMIT = 0.1  # us per event


def main() -> int:
    """Measure, and write the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rollout_cost", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="turns of each (default: %(default)s)")
    parser.add_argument("--events", type=int, default=200_000, help="of a turn (default: %(default)s)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder (default: %(default)s)")
    args = parser.parse_args()
    parts = measured_parts()
    try:
        with real_broker() as broker, tempfile.TemporaryDirectory() as made:
            turns = _turns(broker, Path(made), args.rounds, args.events)
            load = round(os.getloadavg()[0], 1)
            report = {"machine": machine(broker.kind), "load_average": load, "parts": parts, "turns": turns}
    except (NoBrokerError, PeerFailedError) as error:
        print(error, file=sys.stderr)
        return 1
    write_results(args.results, "rollout-cost", report, markdown(report))
    print(markdown(report))
    return 0


def _turns(broker: Broker, folder: Path, rounds: int, events: int) -> list[dict[str, Any]]:
    scene = RolloutScene(folder, broker, 1, 2)
    for version in (1, 2):  # the same model, so that only the rollout differs
        shutil.rmtree(scene.models / str(version))
    write_vector_model(folder, seed=1)
    shutil.copytree(scene.models / "1", scene.models / "2")
    scene.start(100, 0)
    turns = []
    with Worker(scene.service.file) as worker:
        worker.wait_ready()
        worker.wait_for(lambda: is_loaded(worker, "canary", 2), 30, "ready with version 2")
        for number in range(rounds + 1):
            for name, shares in SPLITS.items():
                scene.shift(*shares)
                until_revision(worker, scene.record.revision)
                turn = _turn(scene, worker, events)
                print(name, turn, file=sys.stderr)
                if number:  # the first round warms up
                    turns.append({"name": name, "us": turn})
        if worker.stop() != 0:
            raise PeerFailedError(worker.log[-3000:])
    return turns


def _turn(scene: RolloutScene, worker: Worker, events: int) -> float:
    """Let the worker answer a backlog. Returns us of CPU per event."""
    worker.send(signal.SIGSTOP)
    scene.send(events, wait=False)
    worker.send(signal.SIGCONT)
    before = _cpu_seconds(worker.pid)
    scene.service.wait_written(scene.sent, 120)
    time.sleep(1.0)  # the last commit
    return round((_cpu_seconds(worker.pid) - before) / events * 1e6, 3)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def markdown(report: dict[str, Any]) -> str:
    """The report for people."""
    by_name = {name: [turn["us"] for turn in report["turns"] if turn["name"] == name] for name in SPLITS}
    rows = ""
    for name, took in by_name.items():
        ratios = sorted(own / one for own, one in zip(took, by_name["one version"], strict=True))
        quartiles = f"{ratios[len(ratios) // 4]:.3f} to {ratios[-1 - len(ratios) // 4]:.3f}"
        rows += f"| {name} | {median(took):.2f} | {median(ratios):.3f} | {quartiles} |\n"
    parts = "".join(f"| {name} | {took:.3f} |\n" for name, took in report["parts"].items())
    busy = (
        f" **Other programs kept the machine busy (a load of {report['load_average']:g}), so rounds differ, and "
        "all CPU times are higher than on a quiet machine.**"
        if report["load_average"] > 3  # of this benchmark and its broker
        else ""
    )
    told = ", ".join(f"{name} {value}" for name, value in report["machine"].items())
    return (
        "# The cost of a rollout\n\n"
        "One worker answers backlogs of the vector workload (158 bytes, 32 floats, a three-layer perceptron), in micro-batches "
        "of at most 256 events. Both versions are the same model, so only the rollout differs. Medians. "
        f"Machine: {told}.{busy}\n\n"
        f"| live versions | CPU us per event | / one version | middle half of the rounds |\n|---|---|---|---|\n{rows}\n"
        "The parts, with models that do nothing. What one version takes is subtracted.\n\n"
        f"| | us per event |\n|---|---|\n{parts}"
    )


if __name__ == "__main__":
    sys.exit(main())
