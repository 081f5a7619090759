"""What the executor kserve costs beside a bare loop around NVIDIA's client: both send the same requests to the same Triton.

`python -m benchmarks.remote` measures two models: a trivial one, which shows the overhead at its largest, and the flights model
in ONNX Runtime. The bare loop does the same work for a request: it makes the tensors, sends them, and reads the outputs into
arrays. Beside it, the executor runs in a worker's pool (`benchmarks.worker_pool`). They take turns. A ratio is the median of the
rounds' ratios, because other programs slow some rounds down. Results go to results/remote.json and remote.md.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import shutil
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.errors import LeftOutError
from benchmarks.machine import machine
from benchmarks.pages import write_results
from benchmarks.servers.triton_server import Triton, write_model
from benchmarks.worker_pool import WorkerPool, measured, micro_batch
from millstream.consumers.cli.work import COLLECT_AFTER, SWITCH_INTERVAL
from millstream.consumers.demo.example import example_folder
from millstream.consumers.demo.flights import departures
from millstream.consumers.demo.served import MODEL as FLIGHTS
from millstream.consumers.demo.served import move_model
from millstream.inference.executors.blocking import BlockingExecutor
from millstream.inference.executors.choice import open_executor
from millstream.inference.repository import load_version

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy.typing as npt

    from millstream.inference.executors.loop_thread import LoopThread

RESULTS = Path(__file__).parent / "results"
BARE, OURS = "a loop around tritonclient", "the executor in a worker's pool"
TIMEOUT = 600.0  # seconds of a run
WIDTH = 32  # numbers of an event of the trivial model
CONFIG = f"""
max_batch_size: 512
input [{{ name: "features" data_type: TYPE_FP32 dims: [{WIDTH}] }}]
output [{{ name: "score" data_type: TYPE_FP32 dims: [1] }}]
instance_group [{{ kind: KIND_CPU count: 1 }}]
"""
BODY = 'return answer(score=tensor(request, "features").sum(axis=1, keepdims=True))'
MAPPING = f"""
inputs: [{{tensor: features, field: features, dtype: float32, shape: [{WIDTH}]}}]
outputs: [{{tensor: score}}]
"""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A model, and the events of a request."""

    about: str
    model: str
    outputs: tuple[str, ...]
    inputs: Mapping[str, npt.NDArray[Any]]  # tensor -> [events, ...]
    prepare: Callable[
        [Path, Path, str], None
    ]  # Millstream's repository, the server's, the server's URL -> writes the model


def scenarios(events: int) -> list[Scenario]:
    """The models. `events`: of a request."""
    rows = departures(range(9, 10))[:events]
    numbers = ("day_of_week", "scheduled_departure", "scheduled_arrival", "distance")
    flights = {
        "numbers": np.ascontiguousarray(rows.select(numbers).to_numpy().astype(np.float32)),
        "route": np.array(rows.select("carrier", "origin", "dest").rows(), object),
    }
    trivial = {"features": np.random.default_rng(7).random((events, WIDTH), np.float32)}
    return [
        Scenario(f"trivial, {WIDTH} floats", "scores", ("score",), trivial, _write_trivial),
        Scenario("flights, 4 floats and 3 texts", FLIGHTS, ("late_probability",), flights, _write_flights),
    ]


def _write_trivial(repository: Path, models: Path, url: str) -> None:
    write_model(models, "scores", CONFIG, BODY)
    folder = repository / "scores" / "1"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(f"executor: kserve\nserver: {{urls: [{url}]}}\n{MAPPING}")


def _write_flights(repository: Path, models: Path, url: str) -> None:
    shutil.copytree(example_folder() / "models" / FLIGHTS / "1", repository / FLIGHTS / "1")
    move_model(repository / FLIGHTS, models / FLIGHTS, [1], url)


def bare_loop(loop: LoopThread, url: str, scenario: Scenario, requests: int, concurrency: int) -> None:
    """Send each batch with NVIDIA's client, so many at a time.

    It runs on the executor's event loop: gRPC has one queue of events for all loops of a process, so a second one costs both.
    """
    from tritonclient.grpc import InferInput, InferRequestedOutput  # noqa: PLC0415  (an extra)
    from tritonclient.grpc.aio import InferenceServerClient  # noqa: PLC0415
    from tritonclient.utils import np_to_triton_dtype  # noqa: PLC0415

    async def run() -> None:
        async with InferenceServerClient(url.partition("://")[2]) as client:
            left = iter(range(requests))

            async def one() -> None:
                for _ in left:
                    tensors = []
                    for name, array in scenario.inputs.items():
                        tensors.append(InferInput(name, array.shape, np_to_triton_dtype(array.dtype)))
                        tensors[-1].set_data_from_numpy(array)
                    wanted = [InferRequestedOutput(name) for name in scenario.outputs]
                    result = await client.infer(scenario.model, tensors, "1", outputs=wanted, client_timeout=30)
                    for name in scenario.outputs:
                        assert len(result.as_numpy(name)) == len(array)

            await asyncio.gather(*(one() for _ in range(concurrency)))

    loop.wait_for(run(), TIMEOUT)


def report(args: argparse.Namespace) -> dict[str, Any]:
    """Measure all models. Raises LeftOutError."""
    sys.setswitchinterval(SWITCH_INTERVAL)  # as in a worker
    gc.set_threshold(COLLECT_AFTER)  # the same
    options = {name: getattr(args, name) for name in ("events", "requests", "concurrency", "rounds")}
    found: dict[str, Any] = {"machine": machine("none"), **options, "models": {}}
    for scenario in scenarios(args.events):
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            found["models"][scenario.about] = _compared(args, scenario, Path(folder), stack)
    return found


def _compared(args: argparse.Namespace, scenario: Scenario, folder: Path, stack: ExitStack) -> dict[str, Any]:
    """The runs of both, in turns."""
    triton = stack.enter_context(Triton(folder / "triton"))
    scenario.prepare(folder / "models", folder / "triton", triton.grpc)
    triton.start()
    executor = open_executor(load_version(folder / "models", scenario.model), max_events=args.events)
    assert isinstance(executor, BlockingExecutor)
    stack.callback(executor.close)
    executor.warm_up()
    pool = WorkerPool(executor, args.concurrency)
    stack.callback(pool.close)
    batches = [micro_batch(scenario.inputs)] * args.requests
    clients: dict[str, Callable[[], None]] = {
        BARE: lambda: bare_loop(executor.thread, triton.grpc, scenario, args.requests, args.concurrency),
        OURS: lambda: pool.run(batches),
    }
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in clients}
    for number in range(args.rounds + 1):
        for name, client in clients.items():
            computed = compute_seconds(triton, scenario.model)
            cost = measured(client, args.events * args.requests)
            share = (compute_seconds(triton, scenario.model) - computed) / cost.seconds
            if number:  # the first round only warms up
                runs[name].append({**asdict(cost), "compute_share": share})
    return runs


def compute_seconds(triton: Triton, model: str) -> float:
    """How long the server has computed so far, as it says itself."""
    stats = triton.get(f"/v2/models/{model}/stats")["model_stats"]
    return float(sum(each["inference_stats"]["compute_infer"]["ns"] for each in stats) / 1e9)


def markdown(found: Mapping[str, Any]) -> str:
    """The page."""
    parts = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in found["machine"].items())
    return f"""# The executor kserve beside a bare loop around its client

{found["requests"]:,} requests of {found["events"]} events, {found["concurrency"]} at a time, over gRPC to a local Triton.
Medians of {found["rounds"]} runs of each, in turns; a ratio is the median of the rounds' ratios. Machine: {parts}.

{chr(10).join(table(found))}
"""


def table(found: Mapping[str, Any]) -> list[str]:
    """The rows of the page."""
    lines = [
        "| model | client | CPU us/event | ratio | events/s | ratio | the server computes |",
        "|---|---|---|---|---|---|---|",
    ]
    for about, runs in found["models"].items():
        for name, own in runs.items():
            cpu, rate = (_ratio(own, runs[BARE], of) for of in (_cpu, _rate))
            lines.append(
                f"| {about} | {name} | {median(map(_cpu, own)):.2f} | {cpu:.2f} | {median(map(_rate, own)):,.0f} | {rate:.2f} "
                f"| {median(run['compute_share'] for run in own):.0%} of the time |"
            )
    return lines


def _cpu(run: Mapping[str, float]) -> float:
    return run["cpu"] / run["events"] * 1e6


def _rate(run: Mapping[str, float]) -> float:
    return run["events"] / run["seconds"]


def _ratio(
    own: list[dict[str, float]], bare: list[dict[str, float]], of: Callable[[Mapping[str, float]], float]
) -> float:
    return median(of(mine) / of(other) for mine, other in zip(own, bare, strict=True))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.remote", description=__doc__)
    made.add_argument("--events", type=int, default=64, help="events of a request (default: %(default)s)")
    made.add_argument("--requests", type=int, default=1000, help="requests of a round (default: %(default)s)")
    made.add_argument("--concurrency", type=int, default=32, help="requests at a time (default: %(default)s)")
    made.add_argument("--rounds", type=int, default=20, help="of each client (default: %(default)s)")
    made.add_argument("--results", type=Path, default=RESULTS, help="folder (default: %(default)s)")
    return made


def main() -> int:
    """Run the command line; returns the exit code."""
    args = parser().parse_args()
    try:
        found = report(args)
    except LeftOutError as error:
        print(error, file=sys.stderr)
        return 1
    write_results(args.results, "remote", found, markdown(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
