"""Measures what the executor `openai` costs beside a bare client of a language model: `python -m benchmarks.llm`.

All send the same chats to the same server, 64 at a time, and read the streams. There are two servers: llama-cpp-python with its
tiny model, which computes most of the time (`make llama` builds it); and one without a model, which answers as fast as it can, so
that the clients are what takes the time. Both answer with ten tokens. The clients take turns:

- a loop of aiohttp,
- micro-batches of one event through the executor and a worker's pool (`benchmarks.worker_pool`),
- a whole worker, which also reads the events from Kafka and writes the predictions there; only with `--worker`, because a broker
  needs cores of its own.

Results go to results/llm.json and llm.md.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import aiohttp

from benchmarks.broker import real_broker
from benchmarks.errors import NoBrokerError
from benchmarks.machine import machine
from benchmarks.pages import write_results
from benchmarks.processes import cpu_seconds
from benchmarks.servers.counting_server import CountingServer
from benchmarks.servers.llama_server import LlamaServer, missing
from benchmarks.worker_pool import WorkerPool, measured, micro_batch
from millstream.consumers.cli.work import COLLECT_AFTER, SWITCH_INTERVAL
from millstream.inference.executors.blocking import BlockingExecutor
from millstream.inference.executors.choice import open_executor
from tests.consumers.llm_service import llm_service, send
from tests.consumers.processes import Worker
from tests.inference.executors.openai.models import load, texts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.broker.choice import Broker

RESULTS = Path(__file__).parent / "results"
IN_FLIGHT = 64
TOKENS = 10  # of each completion
TIMEOUT = 600.0  # seconds of a run
LLAMA = "llama-cpp-python"
SERVERS: dict[str, Callable[[], LlamaServer | CountingServer]] = {LLAMA: LlamaServer, "without a model": CountingServer}
BARE, POOL, WORKER = "a loop of aiohttp", "the executor in a worker's pool", "a worker, from Kafka to Kafka"


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a client."""

    tokens: float  # per second
    cpu_ms: float  # per request


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.llm", description=__doc__)
    made.add_argument("--rounds", type=int, default=10, help="of each client (default: %(default)s)")
    made.add_argument("--events", type=int, default=500, help="of each run (default: %(default)s)")
    made.add_argument("--server", choices=SERVERS, action="append", help="default: all that are there")
    made.add_argument("--worker", action="store_true", help="also measure a whole worker, on a real broker")
    made.add_argument("--results", type=Path, default=RESULTS, help="folder (default: %(default)s)")
    return made


def main() -> int:
    """Run the command line; returns the exit code."""
    args = parser().parse_args()
    try:
        with real_broker() if args.worker else nullcontext() as broker:
            found = report(args, broker)
    except NoBrokerError as error:
        print(error, file=sys.stderr)
        return 1
    write_results(args.results, "llm", found, markdown(found))
    return 0


def report(args: argparse.Namespace, broker: Broker | None) -> dict[str, Any]:
    """Measure all clients on all servers. `broker`: None measures no whole worker."""
    sys.setswitchinterval(SWITCH_INTERVAL)  # as in a worker
    gc.set_threshold(COLLECT_AFTER)  # the same
    left_out = {} if (why := missing()) is None else {LLAMA: why}
    return {
        "machine": machine("none" if broker is None else broker.kind),
        "events": args.events,
        "servers": {
            name: _compared(args, SERVERS[name], broker) for name in args.server or SERVERS if name not in left_out
        },
        "left_out": left_out,
    }


def _compared(
    args: argparse.Namespace, server: Callable[[], LlamaServer | CountingServer], broker: Broker | None
) -> dict[str, list[dict[str, float]]]:
    """The runs of each client, in turns."""
    with server() as running, tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        clients: dict[str, Callable[[int], Run]] = {
            BARE: lambda events: _bare(running.url, events),
            POOL: _pool(running.url, Path(folder), stack),
        }
        if broker is not None:
            clients[WORKER] = lambda events: _worker(broker, running.url, events)
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in clients}
        for number in range(args.rounds + 1):
            for name, client in clients.items():
                run = client(args.events)
                runs[name] += [asdict(run)] if number else []  # the first round only warms up
        return runs


def _bare(url: str, events: int) -> Run:
    """A loop of aiohttp that reads the streams, and counts their tokens."""
    left, tokens = iter(range(events)), 0

    async def ask_all(session: aiohttp.ClientSession) -> None:
        nonlocal tokens
        for number in left:
            messages = [{"role": "user", "content": f"hi {number}"}]
            body = {"model": "tiny", "messages": messages, "stream": True}
            async with session.post(f"{url}/chat/completions", json=body) as response:
                async for line in response.content:
                    if line.startswith(b"data: {"):
                        tokens += bool(json.loads(line[6:])["choices"][0]["delta"].get("content"))

    async def run() -> None:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            await asyncio.gather(*(ask_all(session) for _ in range(IN_FLIGHT)))

    cost = measured(lambda: asyncio.run(run()), events)
    assert tokens == TOKENS * events
    return Run(tokens / cost.seconds, cost.cpu_us / 1000)


def _pool(url: str, folder: Path, stack: ExitStack) -> Callable[[int], Run]:
    """The executor with all that a worker has around it: retries, limits, isolation, the order of the results."""
    executor = open_executor(load(folder, url, server={"concurrency": IN_FLIGHT, "timeout": "10m"}))
    assert isinstance(executor, BlockingExecutor)
    stack.callback(executor.close)
    executor.warm_up()
    pool = WorkerPool(executor, IN_FLIGHT)
    stack.callback(pool.close)

    def run(events: int) -> Run:
        batches = [micro_batch(texts(f"hi {number}")) for number in range(events)]
        cost = measured(lambda: pool.run(batches), events)
        return Run(TOKENS * events / cost.seconds, cost.cpu_us / 1000)

    return run


def _worker(broker: Broker, url: str, events: int) -> Run:
    """A worker, from the first event in Kafka to the last prediction there."""
    with tempfile.TemporaryDirectory() as folder:
        service = llm_service(Path(folder), broker, url, server={"concurrency": IN_FLIGHT}, ordering="none")
        with Worker(service.file) as worker:
            worker.wait_ready()
            send(service, ["hi"] * IN_FLIGHT)
            service.wait_committed(TIMEOUT)
            started, cpu = time.perf_counter(), cpu_seconds(worker.pid)
            send(service, [f"hi {number}" for number in range(events)])
            service.wait_written(IN_FLIGHT + events, TIMEOUT)
            seconds, spent = time.perf_counter() - started, cpu_seconds(worker.pid) - cpu
            assert worker.stop() == 0
    return Run(TOKENS * events / seconds, spent / events * 1000)


def markdown(found: Mapping[str, Any]) -> str:
    """The page."""
    parts = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in found["machine"].items())
    left_out = "".join(f"\nLeft out: {name}, because {why}.\n" for name, why in found["left_out"].items())
    rounds = max(len(runs[BARE]) for runs in found["servers"].values())
    return f"""# The executor openai beside a bare client of a language model

{found["events"]:,} chats of {TOKENS} tokens, {IN_FLIGHT} at a time, streamed. Medians of {rounds} runs of each, in turns;
a ratio is the median of the rounds' ratios. Machine: {parts}.

{chr(10).join(table(found))}
{left_out}"""


def table(found: Mapping[str, Any]) -> list[str]:
    """The rows of the page."""
    lines = ["| server | client | tokens/s | ratio | CPU, ms per request |", "|---|---|---|---|---|"]
    for server, runs in found["servers"].items():
        for name, own in runs.items():
            tokens, cpu = (median(run[key] for run in own) for key in ("tokens", "cpu_ms"))
            ratio = median(run["tokens"] / bare["tokens"] for run, bare in zip(own, runs[BARE], strict=True))
            lines.append(f"| {server} | {name} | {tokens:,.0f} | {ratio:.2f} | {cpu:.2f} |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
