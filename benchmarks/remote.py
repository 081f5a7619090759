"""What the executor kserve costs beside a bare loop around NVIDIA's client: both send the same requests to the same Triton.

`python -m benchmarks.remote` prints CPU time per event, events per second, and the ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.errors import LeftOutError
from benchmarks.servers.triton_server import Triton, write_model
from millstream.consumers.cli.work import SWITCH_INTERVAL
from millstream.consumers.events import BatchSlice, DecodedBatch, MicroBatch
from millstream.consumers.execute.async_pool import AsyncExecutorPool
from millstream.consumers.execute.async_runner import AsyncRunner
from millstream.consumers.execute.batch_start import BatchStart
from millstream.consumers.execute.bisecting import Bisection
from millstream.consumers.execute.circuit_breaker import CircuitBreaker
from millstream.consumers.execute.concurrency_limit import ConcurrencyLimit
from millstream.consumers.execute.flights import Flights
from millstream.consumers.execute.rate_limit import GroupQuota
from millstream.consumers.execute.request_gates import QuotaGate, RequestPlaces
from millstream.consumers.execute.result_buffer import ResultBuffer
from millstream.consumers.observability.health import Health
from millstream.consumers.observability.metrics import Metrics
from millstream.consumers.resilience.outage import Outages
from millstream.consumers.resilience.safety_net import SafetyNet
from millstream.inference.executors.blocking import BlockingExecutor
from millstream.inference.executors.choice import open_executor
from millstream.inference.executors.opened import OpenedModel
from millstream.inference.model_id import ModelId
from millstream.inference.repository import load_version
from millstream.schemas.packed import Texts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.consumers.events import ResultQueue

WIDTH = 32  # numbers of an event
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
WARM_UP = 0.1  # share of the requests that run before the first round


@dataclass(frozen=True, slots=True)
class Cost:
    """What so many events took."""

    events: int
    seconds: float
    cpu: float  # seconds, of this process

    @property
    def rate(self) -> float:
        """Events a second."""
        return self.events / self.seconds

    @property
    def cpu_us(self) -> float:
        """CPU time of an event, us."""
        return self.cpu / self.events * 1e6


def measured(run: Callable[[], object], events: int) -> Cost:
    """What a call takes."""
    started, cpu = time.perf_counter(), time.process_time()
    run()
    return Cost(events, time.perf_counter() - started, time.process_time() - cpu)


def bare_loop(url: str, batches: Sequence[Any], concurrency: int) -> None:
    """Send each batch with NVIDIA's client, so many at a time."""
    from tritonclient.grpc import InferInput, InferRequestedOutput  # noqa: PLC0415  (an extra)
    from tritonclient.grpc.aio import InferenceServerClient  # noqa: PLC0415

    async def run() -> None:
        async with InferenceServerClient(url.partition("://")[2]) as client:
            left = iter(batches)

            async def one() -> None:
                for batch in left:
                    tensor = InferInput("features", batch.shape, "FP32")
                    tensor.set_data_from_numpy(batch)
                    wanted = [InferRequestedOutput("score")]
                    result = await client.infer("scores", [tensor], "1", outputs=wanted, client_timeout=30)
                    assert len(result.as_numpy("score")) == len(batch)

            await asyncio.gather(*(one() for _ in range(concurrency)))

    asyncio.run(run())


def micro_batch(features: Any) -> MicroBatch:
    """A micro-batch of one whole block."""
    count = len(features)
    rows = np.arange(count)
    block = DecodedBatch(
        {("in", 0): 1},
        time.monotonic(),
        0,
        partitions={0: ("in", 0)},
        places=np.zeros(count, np.int64),
        offsets=rows,
        timestamps=rows,
        timestamp_types=rows,
        keys=[None] * count,
        values=[b""] * count,
        headers={},
        ends=rows,
        good=rows,
        ids=Texts.of([""] * count),
        event_times=rows,
        deadlines=None,
        costs=None,
        tensors={"features": features},
        features=None,
        invalid_deadlines=0,
        rejected={},
    )
    return MicroBatch((BatchSlice(block, 0, count, 0, count),), "size")


class Ours:
    """The pool of a worker on the executor kserve."""

    def __init__(self, executor: BlockingExecutor, concurrency: int) -> None:
        self.answers: ResultQueue = SimpleQueue()
        metrics, limit = Metrics("p"), ConcurrencyLimit(concurrency)
        max_events = executor.max_events
        runner = AsyncRunner(
            executor.executor,
            Bisection(max_events=max_events, allow_nan_outputs=False, net=SafetyNet("infer", metrics)),
            OpenedModel(ModelId("bench", 1), [executor]),
            start=BatchStart(max_events=max_events, is_outdated=lambda _batch: False, metrics=metrics),
            breaker=CircuitBreaker(Outages(Health(60), metrics)),
            places=RequestPlaces(limit),
            quota=QuotaGate(GroupQuota(None, None, 0.0), lambda: ({}, 1.0)),
            metrics=metrics,
        )
        self.pool = AsyncExecutorPool(
            runner,
            lambda _model, before: before,
            Flights(ResultBuffer(self.answers), ordering="partition", abandon=threading.Event()),
            thread=executor.thread,
            ahead=16,
            fail=lambda error: print(error, file=sys.stderr),
            stalled_after=600,
        )

    def run(self, batches: Sequence[MicroBatch]) -> None:
        """Run the batches, and take their results in order."""
        for batch in batches:
            self.pool.submit(batch)
        self.pool.settle()
        numbers = [one.number for _ in range(self.answers.qsize()) for one in self.answers.get_nowait()]  # type: ignore[union-attr]
        assert len(numbers) == len(batches)
        assert numbers == sorted(numbers)


def compare(args: argparse.Namespace, folder: Path) -> None:
    """Measure both in turns, and print a table."""
    models = folder / "triton"
    write_model(models, "scores", CONFIG, BODY)
    with Triton(models).start() as triton:
        version = folder / "models" / "scores" / "1"
        version.mkdir(parents=True)
        (version / "config.yaml").write_text(f"executor: kserve\nserver: {{urls: [{triton.grpc}]}}\n{MAPPING}")
        executor = open_executor(load_version(folder / "models", "scores"), max_events=args.events)
        assert isinstance(executor, BlockingExecutor)
        executor.warm_up()
        features = np.random.default_rng(7).random((args.events, WIDTH), np.float32)
        raw, batches = [features] * args.requests, [micro_batch(features)] * args.requests
        ours = Ours(executor, args.concurrency)
        warm = max(int(args.requests * WARM_UP), 1)
        bare_loop(triton.grpc, raw[:warm], args.concurrency)
        ours.run(batches[:warm])
        total = args.events * args.requests
        costs: dict[str, list[Cost]] = {"tritonclient": [], "millstream": []}
        for _ in range(args.rounds):
            costs["tritonclient"].append(measured(lambda: bare_loop(triton.grpc, raw, args.concurrency), total))
            costs["millstream"].append(measured(lambda: ours.run(batches), total))
        ours.pool.close()
        executor.close()
    print(table(args, costs))


def table(args: argparse.Namespace, costs: dict[str, list[Cost]]) -> str:
    """The medians of the rounds, and their ratios."""
    cpu = {name: statistics.median(cost.cpu_us for cost in each) for name, each in costs.items()}
    rate = {name: statistics.median(cost.rate for cost in each) for name, each in costs.items()}
    lines = [
        f"{args.requests} requests of {args.events} events, {args.concurrency} at a time, {args.rounds} rounds (medians)",
        "",
        "| | CPU per event | events/s |",
        "|---|---|---|",
        *(f"| {name} | {cpu[name]:.2f} us | {rate[name]:,.0f} |" for name in costs),
        f"| ratio | {cpu['millstream'] / cpu['tritonclient']:.2f} | {rate['millstream'] / rate['tritonclient']:.2f} |",
    ]
    return "\n".join(lines)


def main() -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.remote", description=__doc__)
    parser.add_argument("--events", type=int, default=64, help="events of a request")
    parser.add_argument("--requests", type=int, default=4000, help="requests of a round")
    parser.add_argument("--concurrency", type=int, default=32, help="requests at a time")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    sys.setswitchinterval(SWITCH_INTERVAL)  # as in a worker
    try:
        with tempfile.TemporaryDirectory() as folder:
            compare(args, Path(folder))
    except LeftOutError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
