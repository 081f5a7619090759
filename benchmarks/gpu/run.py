"""`make bench-gpu`: recorded bytes -> decode -> batch -> executor -> encode, without Kafka, against the executor alone.

First, it measures the targets: a sentence-embedding model, and what the executor adds to a call of ONNX Runtime.

Then it measures a perceptron, for ONNX Runtime and torch, each size of micro-batch, one and two of them in flight, one and two
workers on the device: events/s of the executor alone (its inputs ready), called by as many threads; events/s of the whole path;
how busy the GPU was. Without a GPU, it runs a few of these on the CPU, and says which targets it did not measure. Results go to
benchmarks/results/gpu.json, .md and .svg.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.errors import LeftOutError, PeerFailedError
from benchmarks.gpu.device import gpu
from benchmarks.gpu.measure import Task
from benchmarks.gpu.report import Point, markdown, plot, verdict_rows
from benchmarks.gpu.subjects import perceptron
from benchmarks.gpu.targets import measure_targets
from benchmarks.gpu.workers import Workers
from benchmarks.machine import machine
from benchmarks.pages import write_results
from millstream.inference.devices import gpus
from millstream.inference.errors import ModelConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

RESULTS = Path(__file__).parents[1] / "results"
EXECUTORS = ("onnx", "torch")
SIZES = (1, 16, 64, 256, 1024, 4096)
IN_FLIGHT = (1, 2)
WORKERS = (1, 2)
CPU_SIZES, CPU_ONCE = (64,), (1,)  # on a CPU, which shows only that everything runs


def main() -> int:
    """Measure all and write the report, which says what was left out; 1 where that is everything."""
    args = _arguments()
    device = args.device if args.device != "auto" else ("cuda" if gpus() else "cpu")
    targets = measure_targets(device, args.seconds)
    points: list[Point] = []
    left_out: dict[str, str] = {}
    for executor in args.executor or EXECUTORS:
        try:
            for point in _points(executor, device, args):
                points.append(point)
                print(point, file=sys.stderr)
        except (LeftOutError, ModelConfigError, PeerFailedError) as reason:
            left_out[executor] = str(reason)
            print(f"{executor} is left out: {reason}", file=sys.stderr)
    if not points:
        return 1
    report = {
        "device": device,
        "machine": machine("none") | gpu(),
        "targets": verdict_rows(targets.verdicts, targets.why_not),
        "figures": targets.figures,
        "points": [asdict(point) for point in points],
        "left_out": left_out,
    }
    write_results(args.results, "gpu", report, markdown(report))
    (args.results / "gpu.svg").write_text(plot(report))
    return 0


def _points(executor: str, device: str, args: argparse.Namespace) -> Iterator[Point]:
    with tempfile.TemporaryDirectory() as made:
        subject = perceptron(Path(made), executor)
        on_cpu = device == "cpu"
        sizes = args.size or (CPU_SIZES if on_cpu else SIZES)
        for count in args.workers or (CPU_ONCE if on_cpu else WORKERS):
            with Workers(count, subject, device) as workers:
                for batch, in_flight in product(sizes, args.in_flight or (CPU_ONCE if on_cpu else IN_FLIGHT)):
                    alone = workers.measure(Task("executor", batch, in_flight, args.seconds))
                    whole = workers.measure(Task("path", batch, in_flight, args.seconds))
                    yield Point(executor, count, in_flight, batch, alone.rate, whole.rate, alone.busy, whole.busy)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench-gpu", description=__doc__)
    parser.add_argument("--executor", choices=EXECUTORS, action="append", help="default: both")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    _add_numbers(parser, "--size", "events of a micro-batch", SIZES)
    _add_numbers(parser, "--in-flight", "micro-batches that a worker runs at a time", IN_FLIGHT)
    _add_numbers(parser, "--workers", "processes on the device at a time", WORKERS)
    parser.add_argument("--seconds", type=float, default=2, help="of each measurement (default: 2)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder (default: %(default)s)")
    return parser.parse_args()


def _add_numbers(parser: argparse.ArgumentParser, flag: str, about: str, default: Sequence[int]) -> None:
    usual = ", ".join(map(str, default))
    said = f"{about}; may be given again (default: {usual}; on a CPU, only one)"
    parser.add_argument(flag, type=int, action="append", help=said)


if __name__ == "__main__":
    sys.exit(main())
