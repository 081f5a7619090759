"""What hostile records cost a worker: `python -m benchmarks.hostile`.

One worker, exactly once, over a backlog of vector events whose schemas come from a registry: clean, and with one record in twenty
hostile, of all kinds that the fault suite knows. Runs take turns. Results go to results/hostile.json and hostile.md.
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
from consumers.metrics import DEAD_LETTERS, PREDICTIONS
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
SHARES = (0.0, 0.05)  # of the records, that are hostile
EVENTS = 300_000  # of the backlog
WARM = 30_000  # before it
SEED = 1801
LOOK = 0.1  # seconds between two looks at the worker's metrics, which cost it CPU time


@dataclass(frozen=True, slots=True)
class Run:
    """A worker's figures."""

    share: float  # of hostile records
    rate: float  # records a second
    cpu_us: float  # of CPU a record
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
            runs = [
                _run(broker, registry, share)
                for number in range(args.rounds)
                for share in (SHARES if number % 2 == 0 else SHARES[::-1])
            ]
    except NoBrokerError as error:
        print(error, file=sys.stderr)
        return 1
    found = {"machine": on, "events": EVENTS, "runs": [asdict(run) for run in runs]}
    write_results(args.results, "hostile", found, markdown(on, runs))
    return 0


def _run(broker: Broker, registry: Apicurio, share: float) -> Run:
    with tempfile.TemporaryDirectory() as folder:
        client = SchemaRegistryClient({"url": registry.url})
        service, ids = hostile_service(Path(folder), broker, client, registry.url, delivery="exactly_once")
        events = hostile_stream(SEED, ids, int(time.time() * 1000), share)
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
    run = Run(share, EVENTS / seconds, cpu / EVENTS * 1e6, peak, *found)
    print(run, file=sys.stderr)
    return run


def _send(service: Service, events: Sequence[Event]) -> None:
    """Write all in one transaction: the worker sees none of them before the last is there."""
    settings = {"bootstrap.servers": service.bootstrap, "transactional.id": f"load-{service.group}"}
    producer = Producer({**settings, "transaction.timeout.ms": 120_000, "linger.ms": 20})
    producer.init_transactions()
    producer.begin_transaction()
    for event in events:
        while True:
            try:
                producer.produce(service.inputs[0], event.value, event.key, headers=list(event.headers))
                break
            except BufferError:  # the queue is full: let some out
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
    by_share = {share: [run for run in runs if run.share == share] for share in SHARES}
    clean, hostile = (
        {
            name: median(getattr(run, name) for run in by_share[share])
            for name in ("rate", "cpu_us", "peak_mib", "dead_letters")
        }
        for share in SHARES
    )
    lines = [
        "# What hostile records cost",
        "",
        f"One worker, exactly once, over a backlog of {EVENTS:,} vector events whose schemas come from a registry. One record in "
        f"twenty is hostile: every kind of `tests/faults/hostile.py`, among them a flood of unknown schema IDs, schemas that are "
        f"refused, false lengths and records of up to 900 kB. Medians of {len(by_share[SHARES[0]])} runs of each, in turns. "
        "The broker, the registry and the load share the machine's cores with the worker.",
        "",
        f"Machine: {', '.join(f'{name} {value}' for name, value in on.items())}.",
        "",
        "| records | records/s | CPU us a record | peak MiB | dead letters |",
        "|---|---|---|---|---|",
        *(
            f"| {name} | {found['rate']:,.0f} | {found['cpu_us']:.2f} | {found['peak_mib']:.0f} | {found['dead_letters']:,.0f} |"
            for name, found in (("clean", clean), ("5 % hostile", hostile))
        ),
        f"| ratio | {hostile['rate'] / clean['rate']:.2f} | {hostile['cpu_us'] / clean['cpu_us']:.2f} | "
        f"{hostile['peak_mib'] / clean['peak_mib']:.2f} | |",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
