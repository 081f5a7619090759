"""A worker's memory over ten million events: `python -m benchmarks.memory`.

One worker, exactly once with metrics on, over the vector workload; the same seeded events come again and again, a backlog at a
time. After each million its resident memory is noted, when all is answered. Results go to results/memory.json and memory.md.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from itertools import accumulate, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, TopicPartition

from benchmarks.broker import real_broker
from benchmarks.errors import NoBrokerError, PeerFailedError
from benchmarks.load import write_load
from benchmarks.machine import machine
from benchmarks.measure import PARTITIONS, delete_topics, job_of, started
from benchmarks.pages import write_results
from benchmarks.peers.known import millstream
from benchmarks.processes import peak_mib
from benchmarks.workloads import SEED, workload
from tests.broker.clients import create_topic

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence

    from benchmarks.peers.job import Job
    from tests.broker.choice import Broker

RESULTS = Path(__file__).parent / "results"
RUN = "memory"
EVENTS = 200_000  # of a backlog
NOTED_EVERY = 5  # backlogs
PATIENCE = 120  # seconds for one


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("--millions", type=int, default=10, help="of events (default: %(default)s)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder (default: %(default)s)")
    args = parser.parse_args()
    try:
        with real_broker() as broker:
            report = {"machine": machine(broker.kind), **measured(broker, args.millions)}
            delete_topics(broker.bootstrap, RUN)
    except (NoBrokerError, PeerFailedError) as error:
        print(error, file=sys.stderr)
        return 1
    write_results(args.results, "memory", report, markdown(report))
    return 0


def measured(broker: Broker, millions: int) -> dict[str, Any]:
    """Resident MiB after each million events, and the most there ever was. Raises PeerFailedError."""
    with tempfile.TemporaryDirectory() as made:
        chosen = workload("vector", Path(made))
        job = job_of(chosen, broker.bootstrap, RUN)
        load = chosen.make(EVENTS, SEED)
        for topic in (job.input, job.output, job.dead):
            create_topic(broker.bootstrap, topic, PARTITIONS, {})
        with started(millstream("exactly_once")(job, Path(made)), Path(made)) as worker:
            resident = []
            for backlog, events in enumerate(accumulate(repeat(EVENTS, millions * 1_000_000 // EVENTS)), 1):
                write_load(broker.bootstrap, job.input, load)
                _await_committed(worker, job, events, Path(made) / "log")
                if backlog % NOTED_EVERY == 0:
                    resident.append(_resident_mib(worker.pid))
                    print(f"{events:,} events: {resident[-1]:.0f} MiB", file=sys.stderr)
            return {"events": events, "resident_mib": resident, "peak_mib": round(peak_mib(worker.pid), 1)}


def _await_committed(worker: subprocess.Popen[bytes], job: Job, events: int, log: Path) -> None:
    """Wait until the offsets of all events are committed, in transactions with their predictions."""
    consumer = Consumer({"bootstrap.servers": job.bootstrap, "group.id": job.group})
    places = [TopicPartition(job.input, number) for number in range(PARTITIONS)]
    limit = time.monotonic() + PATIENCE
    try:
        while sum(max(place.offset, 0) for place in consumer.committed(places, timeout=30)) < events:
            if worker.poll() is not None or time.monotonic() > limit:
                raise PeerFailedError(f"the worker did not finish: {log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.1)
    finally:
        consumer.close()


def _resident_mib(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return round(int(found[1]) / 1024, 1)


def markdown(report: dict[str, Any]) -> str:
    """The report for people."""
    resident: Sequence[float] = report["resident_mib"]
    half = len(resident) // 2
    lines = [
        "# Memory",
        "",
        f"One worker, exactly once with metrics on, over {report['events']:,} vector events, {EVENTS:,} at a time as fast "
        "as it goes. Resident memory when all that was sent is answered.",
        "",
        f"Machine: {', '.join(f'{name} {value}' for name, value in report['machine'].items())}.",
        "",
        "| million events | MiB |",
        "|---|---|",
        *(f"| {number} | {mib:.0f} |" for number, mib in enumerate(resident, 1)),
        "",
        f"The most at any time: {report['peak_mib']:.0f} MiB (limit 300). Mean of the second half less that of the first: "
        f"{sum(resident[half:]) / len(resident[half:]) - sum(resident[:half]) / max(half, 1):+.1f} MiB.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
