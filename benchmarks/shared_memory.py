"""What `server.shared_memory` of the executor kserve saves: with it and without it, the same tensors go to the same local Triton.

`python -m benchmarks.shared_memory` measures batches of several sizes, on the executor's connections. The answer is one number an
event, so it is in the response either way. They take turns. A ratio is the median of the rounds' ratios. Results go to
results/shared_memory.json and shared_memory.md.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.errors import LeftOutError
from benchmarks.machine import machine
from benchmarks.pages import write_results
from benchmarks.processes import cpu_seconds
from benchmarks.servers.triton_server import Triton, write_model
from millstream.consumers.cli.work import keep_freed_memory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt

    from millstream.inference.executors.kserve.endpoint import Endpoint

RESULTS = Path(__file__).parent / "results"
EVENTS = 64  # of a batch
TIMEOUT = 30.0  # seconds of a request
SIZES = (32, 64, 256, 1024, 4096)  # KiB of a batch
OVER_GRPC, SHARED = "in the request", "in shared memory"
CONFIG = """
max_batch_size: 64
input [{ name: "x" data_type: TYPE_FP32 dims: [-1] }]
output [{ name: "y" data_type: TYPE_FP32 dims: [1] }]
instance_group [{ kind: KIND_CPU count: 1 }]
"""
BODY = 'return answer(y=tensor(request, "x")[:, :1])'


@dataclass(frozen=True, slots=True)
class Run:
    """What a request took in a round."""

    client_us: float  # CPU of this process
    server_us: float  # CPU of Triton, with its models' processes
    rate: float  # requests/s


async def measured(args: argparse.Namespace, triton: Triton) -> dict[str, dict[str, list[Run]]]:
    """The runs by KiB and by way."""
    from millstream.inference.executors.kserve.grpc import GrpcEndpoint  # noqa: PLC0415  (an extra)
    from millstream.inference.executors.kserve.shared_memory import SharedMemoryEndpoint  # noqa: PLC0415  (the same)

    ways: dict[str, Endpoint] = {
        OVER_GRPC: GrpcEndpoint(triton.grpc, {}),
        SHARED: SharedMemoryEndpoint(triton.grpc, {}, "server.shared_memory"),
    }
    try:
        found = {}
        for size in args.size or SIZES:
            batch = np.random.default_rng(7).random((EVENTS, size * 256 // EVENTS), np.float32)
            found[str(size)] = await _compared(args, triton, ways, batch)
        return found
    finally:
        for endpoint in ways.values():
            await endpoint.close()


async def _compared(
    args: argparse.Namespace, triton: Triton, ways: Mapping[str, Endpoint], batch: npt.NDArray[Any]
) -> dict[str, list[Run]]:
    """The runs of both, in turns."""
    runs: dict[str, list[Run]] = {name: [] for name in ways}
    for number in range(args.rounds + 1):
        for name, endpoint in ways.items():
            left = iter(range(args.requests))

            async def one(endpoint: Endpoint = endpoint, left: Iterator[int] = left) -> None:
                for _ in left:
                    answer = await endpoint.infer("first", "", {"x": batch}, ["y"], TIMEOUT)
                    assert len(answer.outputs["y"]) == EVENTS

            before = time.perf_counter(), time.process_time(), cpu_seconds(triton.pid)
            await asyncio.gather(*(one() for _ in range(args.concurrency)))
            after = time.perf_counter(), time.process_time(), cpu_seconds(triton.pid)
            took, client, server = (end - start for start, end in zip(before, after, strict=True))
            if number:  # the first round only warms up
                each = 1e6 / args.requests
                runs[name].append(Run(client * each, server * each, args.requests / took))
    return runs


def markdown(found: Mapping[str, Any]) -> str:
    """The page."""
    parts = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in found["machine"].items())
    return f"""# Tensors in shared memory beside tensors in the request

{found["requests"]:,} requests of one tensor, {found["concurrency"]} at a time, over gRPC to a local Triton. CPU in us for each
request. Medians of {found["rounds"]} runs of each, in turns; a ratio is the median of the rounds' ratios. Machine: {parts}.

{chr(10).join(table(found["sizes"]))}
"""


def table(sizes: Mapping[str, Mapping[str, Sequence[Mapping[str, float]]]]) -> list[str]:
    """The rows of the page."""
    lines = [
        "| KiB of a batch | tensor | CPU of the client | CPU of Triton | CPU of both: ratio | requests/s | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    for size, runs in sizes.items():
        first = runs[OVER_GRPC]
        for name, own in runs.items():
            pairs = list(zip(own, first, strict=True))
            cpu = median(_cpu(mine) / _cpu(other) for mine, other in pairs)
            rate = median(mine["rate"] / other["rate"] for mine, other in pairs)
            client, server, rates = (median(run[key] for run in own) for key in ("client_us", "server_us", "rate"))
            lines.append(
                f"| {int(size):,} | {name} | {client:,.0f} | {server:,.0f} | {cpu:.2f} | {rates:,.0f} | {rate:.2f} |"
            )
    return lines


def _cpu(run: Mapping[str, float]) -> float:
    return run["client_us"] + run["server_us"]


def main() -> int:
    """Run the command line; returns the exit code."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.shared_memory", description=__doc__)
    made.add_argument("--size", type=int, action="append", help=f"KiB of a batch (default: {SIZES})")
    made.add_argument("--requests", type=int, default=300, help="of a round (default: %(default)s)")
    made.add_argument("--concurrency", type=int, default=8, help="requests at a time (default: %(default)s)")
    made.add_argument("--rounds", type=int, default=20, help="of each way (default: %(default)s)")
    made.add_argument("--results", type=Path, default=RESULTS, help="folder (default: %(default)s)")
    args = made.parse_args()
    keep_freed_memory()  # as in a worker
    try:
        with tempfile.TemporaryDirectory() as folder, Triton(Path(folder)) as triton:
            write_model(Path(folder), "first", CONFIG, BODY)
            triton.start()
            runs = asyncio.run(measured(args, triton))
    except LeftOutError as error:
        print(error, file=sys.stderr)
        return 1
    sizes = {size: {name: [asdict(run) for run in each] for name, each in of.items()} for size, of in runs.items()}
    options = {name: getattr(args, name) for name in ("requests", "concurrency", "rounds")}
    found = {"machine": machine("none"), **options, "sizes": sizes}
    write_results(args.results, "shared_memory", found, markdown(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
