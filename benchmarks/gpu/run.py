"""`make bench-gpu`: recorded bytes -> decode -> batch -> executor -> encode, without Kafka, against the executor alone.

For each size of micro-batch, with one and with two in flight: events/s of the executor alone (its inputs ready), called by as
many threads; events/s of the whole path; how busy the GPU was.
Without a GPU it runs on the CPU and says so: that shows that it works, and nothing about GPUs.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.gpu.models import SEED, write_model
from benchmarks.gpu.path import DataPath, Throughput, polls_for, polls_of
from benchmarks.gpu.utilisation import gpu_utilisation
from benchmarks.load import WIDE, vector_events
from consumers.compute import DECODE_RECORDS
from inference.devices import gpus
from inference.executors.choice import open_executor
from inference.repository import load_version
from inference.signature import blank
from schemas.packed import Packed

if TYPE_CHECKING:
    from collections.abc import Callable


RESULTS = Path(__file__).parents[1] / "results"
SIZES = (1, 16, 64, 256, 1024, 4096)
IN_FLIGHT = (1, 2)
RECORDED = 4 * DECODE_RECORDS  # events, read over and over


@dataclass(frozen=True, slots=True)
class Point:
    """Figures of one size of micro-batch and number of them in flight."""

    batch: int
    in_flight: int
    executor_rate: float  # events/s of the executor alone
    path_rate: float  # events/s of the whole path
    executor_busy: float | None  # percent that the GPU was busy; None without one
    path_busy: float | None

    @property
    def call_ms(self) -> float:
        """One call of the executor alone."""
        return self.batch * self.in_flight / self.executor_rate * 1e3

    @property
    def kept(self) -> float:
        """What the path keeps of the executor's events/s."""
        return self.path_rate / self.executor_rate


def main() -> int:
    args = _arguments()
    with tempfile.TemporaryDirectory() as made:
        repository = write_model(Path(made), args.executor)
        model = load_version(repository, WIDE.name, 1)
        device = args.device if args.device != "auto" else ("cuda" if gpus() else "cpu")
        values = Packed.of(vector_events(RECORDED, SEED, WIDE).values)[:]
        points = []
        for size in args.size or SIZES:
            executor = open_executor(model, device=device, max_events=size)
            for in_flight in args.in_flight or IN_FLIGHT:
                path = DataPath(
                    Path(made) / "schemas", f"{WIDE.name}-event", model.signature, executor.run, size, in_flight
                )
                inputs = blank(model.signature.inputs, size)
                points.append(_point(path, values, partial(executor.run, inputs), size, in_flight, args.seconds))
                print(points[-1], file=sys.stderr)
            executor.close()
    report = {
        "executor": args.executor,
        "device": device,
        "machine": platform.machine(),
        "python": platform.python_version(),
        "points": [
            {**asdict(point), "call_ms": round(point.call_ms, 3), "kept": round(point.kept, 3)} for point in points
        ],
    }
    name = f"gpu-{args.executor}-{device}"
    args.results.mkdir(parents=True, exist_ok=True)
    (args.results / f"{name}.json").write_text(json.dumps(report, indent=2) + "\n")
    text = markdown(report)
    (args.results / f"{name}.md").write_text(text)
    print(text)
    return 0


def _point(
    path: DataPath, values: Packed, call: Callable[[], object], size: int, in_flight: int, seconds: float
) -> Point:
    call()
    with gpu_utilisation() as alone:
        executor = _alone(call, size, in_flight, seconds)
    path.run(polls_of(values[: 2 * size * in_flight]))  # warm
    with gpu_utilisation() as whole:
        found = path.run(polls_for(values, seconds))
    return Point(size, in_flight, round(executor.rate, 1), round(found.rate, 1), _mean(alone), _mean(whole))


def _alone(call: Callable[[], object], size: int, callers: int, seconds: float) -> Throughput:
    """The executor called by so many threads, each again as soon as it is answered."""
    start = time.monotonic()

    def calls(_: int) -> int:
        made = 0
        while time.monotonic() < start + seconds:
            call()
            made += 1
        return made

    with ThreadPoolExecutor(callers) as threads:
        events = sum(threads.map(calls, range(callers))) * size
    return Throughput(events, time.monotonic() - start)


def _mean(seen: list[float]) -> float | None:
    return round(sum(seen) / len(seen), 1) if seen else None


def markdown(report: dict[str, Any]) -> str:
    """The report for people."""
    lines = [
        f"# The path around the executor: {report['executor']} on {report['device']}",
        "",
        "Recorded Avro events of 2 kB (512 floats) through decode, batch, executor and encode, without Kafka; a perceptron of "
        "9.4 million parameters.",
        *(
            []
            if report["device"] != "cpu"
            else ["", "**No GPU was used**: this shows that it runs, and nothing about GPUs."]
        ),
        "",
        "| micro-batch | in flight | call ms | executor alone, events/s | whole path, events/s | kept | GPU busy alone "
        "| GPU busy in path |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for point in report["points"]:
        busy = ["" if point[name] is None else f"{point[name]:.0f} %" for name in ("executor_busy", "path_busy")]
        lines.append(
            f"| {point['batch']} | {point['in_flight']} | {point['call_ms']:.2f} | {point['executor_rate']:,.0f} "
            f"| {point['path_rate']:,.0f} | {point['kept']:.0%} | {busy[0]} | {busy[1]} |"
        )
    return "\n".join([*lines, ""])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench-gpu", description=__doc__)
    parser.add_argument("--executor", choices=["onnx", "torch"], default="onnx")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--size", type=int, action="append", help=f"of micro-batches (default: {SIZES})")
    parser.add_argument(
        "--in-flight", type=int, action="append", help=f"micro-batches at a time (default: {IN_FLIGHT})"
    )
    parser.add_argument("--seconds", type=float, default=2, help="of each measurement (default: 2)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder (default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
