"""Measures the throughput of one and of two processes of `millstream compare`: `python -m benchmarks.comparison`.

It writes the same seeded comparisons, each with its label, at once, while the processes are warm. It measures the time until the
results count all of them. Results go to benchmarks/results/comparison.json and comparison.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.broker import real_broker
from benchmarks.errors import NoBrokerError, PeerFailedError
from benchmarks.machine import machine
from benchmarks.measure import delete_topics
from benchmarks.pages import write_results
from benchmarks.processes import cpu_seconds, peak_mib
from millstream.consumers.comparison.show import decode_result
from millstream.consumers.schema_store import open_store
from millstream.topics.records import RecordReader
from tests.comparison.scene import Events, Job, Scene, comparison_scene

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.broker.choice import Broker

RESULTS = Path(__file__).parent / "results"
EVENTS = 100_000
WARM = 2000  # events that come before the measured ones, to warm up
PARTITIONS = 4
PROCESSES = (1, 2)
SEED = 13
TIMEOUT = 120  # seconds


@dataclass(frozen=True, slots=True)
class Run:
    """The figures of one run: all comparisons and their labels, with a number of processes."""

    processes: int
    rate: float  # comparisons/s, from the write of the first until a result counts the last with its label
    cpu_us: float  # CPU microseconds of all processes, per comparison with its label
    share: float  # share of the comparisons that the process with the most has read
    peak_mib: float  # peak memory of the largest process


def main() -> int:
    """Run all and write the report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.comparison", description=__doc__)
    parser.add_argument("--rounds", type=int, default=2, help="of each number of processes (default: 2)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder (default: %(default)s)")
    args = parser.parse_args()
    runs = []
    try:
        with real_broker() as broker:
            for number in range(args.rounds):
                for processes in PROCESSES[:: 1 if number % 2 == 0 else -1]:
                    runs.append(run(broker, processes))
                    print(runs[-1], file=sys.stderr)
            report = {"machine": machine(broker.kind), "events": EVENTS, "runs": [asdict(one) for one in runs]}
    except NoBrokerError as error:
        print(error, file=sys.stderr)
        return 1
    write_results(args.results, "comparison", report, markdown(report))
    return 0


def run(broker: Broker, processes: int) -> Run:
    """One run with its own topics. Raises PeerFailedError."""
    with tempfile.TemporaryDirectory() as made, ExitStack() as stack:
        scene = comparison_scene(Path(made), broker, partitions=PARTITIONS)
        events = Events.make(WARM + EVENTS, seed=SEED)
        jobs = [stack.enter_context(Job(scene, "--metrics-port", "0")) for _ in range(processes)]
        results = _Results(stack, scene)
        for job in jobs:
            job.wait_for(lambda job=job: job.metric("millstream_comparison_update_seconds") > 0, "at work")  # type: ignore[misc]
        _write(scene, events.part(0, WARM))
        results.wait(WARM)
        read, cpu = [_read(job) for job in jobs], [cpu_seconds(job.pid) for job in jobs]
        started = _write(scene, events.part(WARM, WARM + EVENTS))
        seconds = results.wait(WARM + EVENTS) - started
        used = sum(cpu_seconds(job.pid) for job in jobs) - sum(cpu)
        most = max(_read(job) - before for job, before in zip(jobs, read, strict=True))
        found = Run(
            processes=processes,
            rate=round(EVENTS / seconds, 1),
            cpu_us=round(used / EVENTS * 1e6, 1),
            share=round(most / EVENTS, 2),
            peak_mib=round(max(peak_mib(job.pid) for job in jobs), 1),
        )
        for job in jobs:
            job.stop()
    delete_topics(scene.bootstrap, scene.pipeline.name)
    return found


class _Results:
    """Reads the job's results."""

    def __init__(self, stack: ExitStack, scene: Scene) -> None:
        client, topic = scene.pipeline.client_config(), scene.pipeline.comparison.evaluations
        self._reader = stack.enter_context(RecordReader(client, [topic], from_beginning=True))
        self._store = open_store(scene.pipeline)
        self._labelled: dict[bytes | None, int] = {}  # by window

    def wait(self, events: int) -> float:
        """Wait until the results count this many events with labels; returns when that was written, seconds since the epoch.

        Raises:
            PeerFailedError: the results don't count them in time.
        """
        until = time.monotonic() + TIMEOUT
        while time.monotonic() < until:
            for record in self._reader.read(1, 0.5):
                row = decode_result(record.value or b"", self._store)
                self._labelled[record.key] = row["labelled"]
                if sum(self._labelled.values()) >= events:
                    return float(row["updated_at"]) / 1000
        raise PeerFailedError(f"{sum(self._labelled.values())} of {events} comparisons were counted with their labels")


def _write(scene: Scene, events: Events) -> float:
    """Write the events' comparisons and labels; returns when the writing started, seconds since the epoch."""
    assert scene.pipeline.labels is not None
    comparisons, labels = scene.comparisons(events), scene.labels(events.ids, events.labels.tolist())
    began = time.time()
    scene.write(scene.pipeline.comparison.topic, comparisons)
    scene.write(scene.pipeline.labels.topic, labels)
    return began


def _read(job: Job) -> float:
    """The number of comparisons that the process has read."""
    return job.metric("millstream_comparison_records_total", what="comparisons")


def markdown(report: Mapping[str, Any]) -> str:
    """The report for people."""
    one, two = ([run for run in report["runs"] if run["processes"] == number] for number in PROCESSES)
    cores = report["machine"]["cores"]
    ratio = _middle(two, "rate") / _middle(one, "rate")
    lines = [
        "# The comparison job: one process and two",
        "",
        f"`millstream compare` over {report['events']:,} seeded comparisons and their labels in {PARTITIONS} partitions, written "
        "at once to warm processes, until the results count the last of them with its label (they are written every 0.5 s). The "
        f"median of {len(one)} rounds in turns, and behind it the least and most.",
        "",
        f"Machine: {', '.join(f'{name} {value}' for name, value in report['machine'].items())}.",
        "",
        f"**The {cores} cores are the broker's, too, and those of what writes and reads here**: two processes can't have two "
        "cores to themselves where there are no more. Whether the work itself grows with the processes is in the CPU time of a "
        "comparison, which such sharing changes little.",
        "",
        "| processes | comparisons/s | CPU us/comparison | read by the one with the most | peak MiB of a process |",
        "|---|---|---|---|---|",
        *(_row(runs) for runs in (one, two)),
        "",
        f"Two processes do **{ratio:.2f} times** what one does.",
    ]
    return "\n".join(lines) + "\n"


def _row(runs: list[dict[str, Any]]) -> str:
    rates, cpu = sorted(run["rate"] for run in runs), sorted(run["cpu_us"] for run in runs)
    return (
        f"| {runs[0]['processes']} | {median(rates):,.0f} ({rates[0]:,.0f}-{rates[-1]:,.0f}) "
        f"| {median(cpu):.0f} ({cpu[0]:.0f}-{cpu[-1]:.0f}) | {_middle(runs, 'share'):.0%} | {_middle(runs, 'peak_mib'):.0f} |"
    )


def _middle(runs: list[dict[str, Any]], name: str) -> float:
    return float(median(run[name] for run in runs))


if __name__ == "__main__":
    sys.exit(main())
