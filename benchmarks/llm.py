"""Measures what the executor `openai` costs beside a bare client of a language model: `python -m benchmarks.llm`.

All send the same chats to the same server, 64 at a time, and read the streams. The server is llama-cpp-python with its tiny
model, which answers with ten tokens. They take turns:

- a loop of aiohttp,
- micro-batches of one event through the executor and a worker's pool (`benchmarks.worker_pool`),
- a whole worker, which also reads the events from Kafka and writes the predictions there; only with `--worker`, because a broker
  needs cores of its own.

Results go to results/llm.json and llm.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from contextlib import ExitStack
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
from benchmarks.servers.llama_server import LlamaServer, missing
from benchmarks.worker_pool import WorkerPool, measured, micro_batch
from millstream.consumers.cli.work import SWITCH_INTERVAL
from millstream.inference.executors.blocking import BlockingExecutor
from millstream.inference.executors.choice import open_executor
from tests.consumers.llm_service import llm_service, send
from tests.consumers.processes import Worker
from tests.inference.executors.openai.models import load, texts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.broker.choice import Broker

RESULTS = Path(__file__).parent / "results"
IN_FLIGHT = 64
TOKENS = 10  # of each completion
TIMEOUT = 600.0  # seconds of a run
BARE, POOL, WORKER = "a loop of aiohttp", "the executor in a worker's pool", "a worker, from Kafka to Kafka"


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a client."""

    tokens: float  # per second
    cpu_ms: float  # per request


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.llm", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="of each client (default: %(default)s)")
    parser.add_argument("--events", type=int, default=500, help="of each run (default: %(default)s)")
    parser.add_argument("--worker", action="store_true", help="also measure a whole worker, on a real broker")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder (default: %(default)s)")
    args = parser.parse_args()
    if (why := missing()) is not None:
        print(why, file=sys.stderr)
        return 1
    sys.setswitchinterval(SWITCH_INTERVAL)  # as in a worker
    try:
        report = _report(args)
    except NoBrokerError as error:
        print(error, file=sys.stderr)
        return 1
    write_results(args.results, "llm", report, markdown(report))
    return 0


def _report(args: argparse.Namespace) -> dict[str, Any]:
    with ExitStack() as stack:
        broker = stack.enter_context(real_broker()) if args.worker else None
        server = stack.enter_context(LlamaServer())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        clients: dict[str, Callable[[int], Run]] = {
            BARE: lambda events: _bare(server.url, events),
            POOL: _pool(server.url, folder, stack),
        }
        if broker is not None:
            clients[WORKER] = lambda events: _worker(broker, server.url, events)
        runs: dict[str, list[Run]] = {name: [] for name in clients}
        for number in range(args.rounds + 1):
            for name, client in clients.items():
                run = client(args.events)
                runs[name] += [run] if number else []  # the first round only warms up
        return {
            "machine": machine("none" if broker is None else broker.kind),
            "events": args.events,
            "runs": {name: [asdict(run) for run in found] for name, found in runs.items()},
        }


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


def markdown(report: Mapping[str, Any]) -> str:
    """The page. A ratio is the median of those of each round, because other programs may slow some rounds down."""
    runs: Mapping[str, list[dict[str, float]]] = report["runs"]
    parts = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in report["machine"].items())
    rows = []
    for name, found in runs.items():
        tokens, cpu = (median(run[key] for run in found) for key in ("tokens", "cpu_ms"))
        ratio = median(run["tokens"] / bare["tokens"] for run, bare in zip(found, runs[BARE], strict=True))
        rows.append(f"| {name} | {tokens:,.0f} | {ratio:.2f} | {cpu:.2f} |")
    table = "\n".join(rows)
    return f"""# The executor openai beside a bare client of a language model

{report["events"]:,} chats of {TOKENS} tokens, {IN_FLIGHT} at a time, streamed by llama-cpp-python with a tiny model. Medians of
{len(runs[BARE])} runs of each, in turns. Machine: {parts}.

| client | tokens/s | ratio | CPU, ms per request |
|---|---|---|---|
{table}
"""


if __name__ == "__main__":
    sys.exit(main())
