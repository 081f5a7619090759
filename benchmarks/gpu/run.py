"""`make bench-gpu`: recorded bytes -> decode -> batch -> executor -> encode, without Kafka, against the executor alone.

For each size of micro-batch: events/s of the executor alone (its inputs ready), events/s of the whole path, how busy the GPU was.
Without a GPU it runs on the CPU and says so: that shows that it works, and nothing about GPUs.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.gpu.models import SEED, write_model
from benchmarks.gpu.path import DataPath
from benchmarks.gpu.utilisation import gpu_utilisation
from benchmarks.load import WIDE, vector_events
from inference.devices import gpus
from inference.executors.choice import open_executor
from inference.repository import load_version
from inference.signature import Signature, blank
from schemas.packed import Packed

if TYPE_CHECKING:
    from inference.executors.interface import ModelExecutor

RESULTS = Path(__file__).parents[1] / "results"
SIZES = (1, 16, 64, 256, 1024, 4096)
LEAST_EVENTS = 20_000  # of a run over the path


@dataclass(frozen=True, slots=True)
class Point:
    """Figures of one size of micro-batch."""

    batch: int
    call_ms: float  # one call of the executor
    executor_rate: float  # events/s of the executor alone
    path_rate: float  # events/s of the whole path
    executor_busy: float | None  # percent that the GPU was busy; None without one
    path_busy: float | None

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
        points = []
        for size in args.size or SIZES:
            executor = open_executor(model, device=device, max_events=size)
            points.append(_point(Path(made) / "schemas", model.signature, executor, size, args.seconds))
            executor.close()
            print(points[-1], file=sys.stderr)
    report = {
        "executor": args.executor,
        "device": device,
        "machine": platform.machine(),
        "python": platform.python_version(),
        "points": [{**asdict(point), "kept": round(point.kept, 3)} for point in points],
    }
    name = f"gpu-{args.executor}-{device}"
    args.results.mkdir(parents=True, exist_ok=True)
    (args.results / f"{name}.json").write_text(json.dumps(report, indent=2) + "\n")
    text = markdown(report)
    (args.results / f"{name}.md").write_text(text)
    print(text)
    return 0


def _point(schemas: Path, signature: Signature, executor: ModelExecutor, size: int, seconds: float) -> Point:
    inputs = blank(signature.inputs, size)
    for _ in range(3):
        executor.run(inputs)
    with gpu_utilisation() as alone:
        start, calls = time.monotonic(), 0
        while (spent := time.monotonic() - start) < seconds:
            executor.run(inputs)
            calls += 1
    rate = calls * size / spent
    load = vector_events(min(LEAST_EVENTS, max(size * 8, int(rate * seconds / 4))), SEED, WIDE)
    values = Packed.of(load.values)[:]
    path = DataPath(schemas, f"{WIDE.name}-event", signature, executor, size)
    path.run(values[: 2 * size])  # warm
    with gpu_utilisation() as whole:
        took, rounds = 0.0, 0
        while took < seconds:
            took += path.run(values)
            rounds += 1
    path_rate = rounds * len(values) / took
    return Point(size, round(spent / calls * 1e3, 3), round(rate, 1), round(path_rate, 1), _mean(alone), _mean(whole))


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
        "| micro-batch | call ms | executor alone, events/s | whole path, events/s | kept | GPU busy alone | GPU busy in path |",
        "|---|---|---|---|---|---|---|",
    ]
    for point in report["points"]:
        busy = ["" if point[name] is None else f"{point[name]:.0f} %" for name in ("executor_busy", "path_busy")]
        lines.append(
            f"| {point['batch']} | {point['call_ms']:.2f} | {point['executor_rate']:,.0f} | {point['path_rate']:,.0f} "
            f"| {point['kept']:.0%} | {busy[0]} | {busy[1]} |"
        )
    return "\n".join([*lines, ""])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench-gpu", description=__doc__)
    parser.add_argument("--executor", choices=["onnx", "torch"], default="onnx")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--size", type=int, action="append", help=f"of micro-batches (default: {SIZES})")
    parser.add_argument("--seconds", type=float, default=2, help="of each measurement (default: 2)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder (default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
