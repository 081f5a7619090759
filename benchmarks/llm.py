"""Measures what a worker costs beside a bare client of a language model: `python -m benchmarks.llm`.

Both send the same chats to the same server, 64 at a time, and read the streams. The server is llama-cpp-python with its tiny
model, which answers with ten tokens. The bare client is a loop of aiohttp. The worker also reads the events from Kafka and writes
the predictions there. They take turns. Results go to results/llm.json and llm.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
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
from tests.consumers.llm_service import llm_service, send
from tests.consumers.processes import Worker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.broker.choice import Broker

RESULTS = Path(__file__).parent / "results"
IN_FLIGHT = 64
TOKENS = 10  # of each completion
TIMEOUT = 600.0  # seconds of a run


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a client."""

    tokens: float  # per second
    cpu_ms: float  # per request


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.llm", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="of each client (default: %(default)s)")
    parser.add_argument("--events", type=int, default=1000, help="of each run (default: %(default)s)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder (default: %(default)s)")
    args = parser.parse_args()
    if (why := missing()) is not None:
        print(why, file=sys.stderr)
        return 1
    try:
        with real_broker() as broker, LlamaServer() as server:
            runs = _turns(broker, server.url, args.rounds, args.events)
            report = {
                "machine": machine(broker.kind),
                "events": args.events,
                "runs": {name: [asdict(run) for run in found] for name, found in runs.items()},
            }
    except NoBrokerError as error:
        print(error, file=sys.stderr)
        return 1
    write_results(args.results, "llm", report, markdown(report))
    return 0


def _turns(broker: Broker, url: str, rounds: int, events: int) -> dict[str, list[Run]]:
    """The runs of both clients, which take turns; before them one of each that doesn't count."""
    found: dict[str, list[Run]] = {"bare": [], "worker": []}
    for number in range(rounds + 1):
        pair = {"bare": asyncio.run(_bare(url, events)), "worker": _worker(broker, url, events)}
        for name, run in pair.items() if number else ():
            found[name].append(run)
    return found


async def _bare(url: str, events: int) -> Run:
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

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        started, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(ask_all(session) for _ in range(IN_FLIGHT)))
        return Run(tokens / (time.perf_counter() - started), (time.process_time() - cpu) / events * 1000)


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
            run = Run(
                TOKENS * events / (time.perf_counter() - started), (cpu_seconds(worker.pid) - cpu) / events * 1000
            )
            assert worker.stop() == 0
    return run


def markdown(report: Mapping[str, Any]) -> str:
    """The page."""
    bare, worker = (_medians(report["runs"][name]) for name in ("bare", "worker"))
    rounds = len(report["runs"]["bare"])
    parts = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in report["machine"].items())
    return f"""# A worker beside a bare client of a language model

{report["events"]:,} chats of {TOKENS} tokens, {IN_FLIGHT} at a time, streamed by llama-cpp-python with a tiny model. Medians of
{rounds} runs of each, in turns. Machine: {parts}.

| client | tokens/s | ratio | CPU, ms per request |
|---|---|---|---|
| a loop of aiohttp | {bare.tokens:,.0f} | 1.00 | {bare.cpu_ms:.2f} |
| a worker, from Kafka to Kafka | {worker.tokens:,.0f} | {worker.tokens / bare.tokens:.2f} | {worker.cpu_ms:.2f} |
"""


def _medians(runs: Sequence[Mapping[str, float]]) -> Run:
    return Run(median(run["tokens"] for run in runs), median(run["cpu_ms"] for run in runs))


if __name__ == "__main__":
    sys.exit(main())
