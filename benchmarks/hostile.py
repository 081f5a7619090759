"""Measures what hostile records cost a worker: `python -m benchmarks.hostile`.

One worker processes a backlog of vector events exactly once. The schemas come from a registry. One stream is clean; in the
others, one record in twenty is hostile, of all kinds of the fault suite. The streams take turns. Results go to
results/hostile.json and hostile.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient

from benchmarks.broker import real_broker
from benchmarks.errors import NoBrokerError
from benchmarks.machine import machine
from benchmarks.pages import write_results
from benchmarks.processes import cpu_seconds, peak_mib
from millstream.consumers.observability.metrics import DEAD_LETTERS, PREDICTIONS
from tests.broker.clients import wait_until
from tests.consumers.processes import Worker
from tests.faults.hostile import hostile_service, hostile_stream
from tests.registry.apicurio import Apicurio

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.broker.choice import Broker
    from tests.consumers.service import Service
    from tests.faults.load import Event

RESULTS = Path(__file__).parent / "results"
STREAMS = {  # name -> share of hostile records, and whether some of them are huge
    "clean": (0.0, False),
    "5 % hostile": (0.05, False),
    "5 % hostile, also by size": (0.05, True),
}
EVENTS = 1_500_000  # events of the backlog
WARM = 100_000  # events before it, to warm up
FIGURES = ("rate", "mb", "cpu_us", "peak_mib", "dead_letters")
SEED = 1801
LOOK = 0.2  # seconds between two reads of the worker's metrics; each costs the worker CPU time


@dataclass(frozen=True, slots=True)
class Run:
    """A worker's figures."""

    stream: str
    rate: float  # records per second
    mb: float  # megabytes of keys, values and headers per second
    cpu_us: float  # CPU microseconds per record
    peak_mib: float
    predictions: int
    dead_letters: int


def main() -> int:
    """Run all and write the report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hostile", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="of each (default: %(default)s)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder (default: %(default)s)")
    args = parser.parse_args()
    try:
        with real_broker() as broker, Apicurio() as registry:
            on = machine(broker.kind)
            for stream in STREAMS:  # not counted: a new broker compiles its code on the cores that the worker needs
                _run(broker, registry, stream)
            runs = [
                _run(broker, registry, stream)
                for number in range(args.rounds)
                for stream in list(STREAMS)[:: 1 if number % 2 == 0 else -1]
            ]
    except NoBrokerError as error:
        print(error, file=sys.stderr)
        return 1
    found = {"machine": on, "events": EVENTS, "runs": [asdict(run) for run in runs]}
    write_results(args.results, "hostile", found, markdown(on, runs))
    return 0


def _run(broker: Broker, registry: Apicurio, stream: str) -> Run:
    with tempfile.TemporaryDirectory() as folder:
        client = SchemaRegistryClient({"url": registry.url})
        service, ids = hostile_service(Path(folder), broker, client, registry.url, delivery="exactly_once")
        share, huge = STREAMS[stream]
        events = hostile_stream(SEED, ids, int(time.time() * 1000), share, huge=huge)
        with Worker(service.file) as worker:
            worker.wait_ready()
            _send(service, list(islice(events, WARM)))
            _wait_done(worker, WARM)
            backlog, cpu = list(islice(events, EVENTS)), cpu_seconds(worker.pid)
            _send(service, backlog)
            started = time.monotonic()
            _wait_done(worker, WARM + EVENTS)
            seconds, cpu = time.monotonic() - started, cpu_seconds(worker.pid) - cpu
            metrics, peak = worker.metrics(), peak_mib(worker.pid)
            assert worker.stop() == 0, worker.log
    found = int(metrics[PREDICTIONS.name]), int(metrics[DEAD_LETTERS.name])
    run = Run(stream, EVENTS / seconds, sum(map(_size, backlog)) / seconds / 1e6, cpu / EVENTS * 1e6, peak, *found)
    print(run, file=sys.stderr)
    return run


def _size(event: Event) -> int:
    return len(event.key) + len(event.value) + sum(len(name) + len(value or b"") for name, value in event.headers)


def _send(service: Service, events: Sequence[Event]) -> None:
    """Write all records in one transaction, so that they all become visible to the worker at once."""
    settings = {"bootstrap.servers": service.bootstrap, "transactional.id": f"load-{service.group}"}
    # Compress as the fault suite does: the topic accepts the large keys only because they are small when compressed.
    sizes = {"compression.type": "lz4", "message.max.bytes": 20_000_000, "batch.size": 500_000}
    producer = Producer({**settings, **sizes, "transaction.timeout.ms": 120_000, "linger.ms": 20})
    producer.init_transactions()
    producer.begin_transaction()
    for event in events:
        while True:
            try:
                producer.produce(service.inputs[0], event.value, event.key, headers=list(event.headers))
                break
            except BufferError:  # the queue is full: wait until some records are sent
                producer.poll(0.1)
    producer.commit_transaction()


def _wait_done(worker: Worker, records: int) -> None:
    def done() -> bool:
        time.sleep(LOOK)
        metrics = worker.metrics()
        return metrics.get(PREDICTIONS.name, 0) + metrics.get(DEAD_LETTERS.name, 0) >= records

    wait_until(done, 120, f"{records} records to have their result")


def markdown(on: Mapping[str, Any], runs: Sequence[Run]) -> str:
    """The report for people."""
    rows = {}
    for stream in STREAMS:
        of_stream = [run for run in runs if run.stream == stream]
        rows[stream] = {name: median(getattr(run, name) for run in of_stream) for name in FIGURES}
    clean = rows["clean"]
    lines = [
        "# What hostile records cost",
        "",
        f"One worker, exactly once, over a backlog of {EVENTS:,} vector events whose schemas come from a registry. One record in "
        "twenty is hostile, of the kinds in `tests/faults/hostile.py`: a flood of unknown schema IDs, schemas that are refused, "
        "false lengths, wrong features, times and deadlines at the edge. The last stream also has records that are hostile by "
        "their size: 200 headers, values of 900 kB, keys and headers of 3 MB. "
        f"Medians of {len(runs) // len(STREAMS)} runs of each, in turns. The broker, the registry and the load share the "
        "machine's cores with the worker.",
        "",
        f"Machine: {', '.join(f'{name} {value}' for name, value in on.items())}.",
        "",
        "| stream | records/s | / clean | MB/s | CPU us a record | / clean | peak MiB | dead letters |",
        "|---|---|---|---|---|---|---|---|",
        *(
            f"| {stream} | {row['rate']:,.0f} | {row['rate'] / clean['rate']:.2f} | {row['mb']:,.0f} | {row['cpu_us']:.2f} | "
            f"{row['cpu_us'] / clean['cpu_us']:.2f} | {row['peak_mib']:,.0f} | {row['dead_letters']:,.0f} |"
            for stream, row in rows.items()
        ),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
