"""Measures how long a read-committed reader sees no results when a worker ends: `python -m tests.faults.recovery`.

It starts its own broker, and writes benchmarks/results/recovery.json and recovery.md. The silence is the longest time without a
result from any one input partition, while events arrive at a steady rate. It includes the stop or crash, the rebalance, and the
worker's start if it comes back.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import Consumer, TopicPartition

from benchmarks.machine import machine
from millstream.consumers.observability import metrics as m
from tests.broker.choice import Broker
from tests.broker.clients import wait_until
from tests.broker.maven import MavenKafka
from tests.consumers.service import id_of
from tests.faults.service import assert_exactly_once, under_load

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from tests.consumers.service import Service
    from tests.faults.load import Stream
    from tests.faults.service import Fleet

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
ROUNDS = 3
RATE = 500  # events a second


@dataclass(frozen=True, slots=True)
class Silence:
    """A case's figures in seconds: the median of the rounds, and the worst."""

    case: str
    aim: str
    median: float
    worst: float
    start: float  # median time from a worker's start until it asks to join the group; 0: no worker starts in this case


class Reader:
    """Notes when each result becomes visible to a read-committed reader; a context manager."""

    def __init__(self, service: Service) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": service.bootstrap,
                "group.id": "recovery",  # never joined
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 10,
            }
        )
        partitions = self._consumer.list_topics(service.output, timeout=10).topics[service.output].partitions
        self._consumer.assign([TopicPartition(service.output, number, 0) for number in partitions])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.seen: dict[str, float] = {}  # event id -> seconds on the monotonic clock

    def _run(self) -> None:
        while not self._stop.is_set():
            records = self._consumer.consume(1000, 0.01)
            now = time.monotonic()
            self.seen |= {id_of(record): now for record in records if record.error() is None}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()


def drain_and_return(fleet: Fleet, stream: Stream) -> list[float]:
    """Two workers, one after the other, are drained and started again."""
    starts = []
    for instance_id in ("w0", "w1"):
        fleet.stop(instance_id)
        starts.append(_start(fleet, instance_id))
        fleet.wait_ready()
        stream.wait_for_more(5 * RATE)
    return starts


def drain(fleet: Fleet, _: Stream) -> list[float]:
    """One of two workers is drained."""
    fleet.stop("w0")
    return []


def kill_and_return(fleet: Fleet, _: Stream) -> list[float]:
    """One of two is killed and started at once."""
    fleet.kill("w0")
    return [_start(fleet, "w0")]


def kill(fleet: Fleet, _: Stream) -> list[float]:
    """One of two is killed and never returns."""
    fleet.kill("w0")
    return []


@dataclass(frozen=True, slots=True)
class Case:
    """What happens to a worker, and the longest silence that is allowed."""

    what: str
    aim: float  # seconds
    fault: Callable[[Fleet, Stream], list[float]]
    membership: dict[str, Any] = field(default_factory=dict)
    with_start: bool = False  # whether the time of the worker's start is added to the aim


CASES = [
    Case("SIGTERM, one of two leaves", 1, drain),
    Case("SIGTERM, both restarted in turn", 1, drain_and_return),
    Case("SIGKILL, restarted at once", 7, kill_and_return),
    Case("SIGKILL, restarted at once, `membership: {static: true}`", 2, kill_and_return, {"static": True}, True),
    Case("SIGKILL, never returns", 20, kill),
]


def main() -> None:
    found = []
    with MavenKafka() as own:
        for case in CASES:
            rounds = [silence_of(case, own.bootstrap, number) for number in range(ROUNDS)]
            silences = [silence for silence, _ in rounds]
            starts = [start for _, some in rounds for start in some]
            aim = f"{case.aim:g} s{' and the start' if case.with_start else ''}"
            line = Silence(case.what, aim, median(silences), max(silences), median(starts) if starts else 0.0)
            print(line, flush=True)
            found.append(line)
    _write(found)


def silence_of(case: Case, bootstrap: str, seed: int) -> tuple[float, list[float]]:
    """Run a case once; returns the longest silence of any input partition, and the time of each start, in seconds."""
    with tempfile.TemporaryDirectory() as folder:
        kafka = Broker(bootstrap, durable=True, kind="maven")
        sections: dict[str, Any] = {"membership": case.membership} if case.membership else {}
        with (
            under_load(Path(folder), kafka, seed, rate=RATE, **sections) as (service, fleet, stream),
            Reader(service) as reader,
        ):
            fleet.start("w0", "w1")
            for name in ("w0", "w1"):
                fleet[name].wait_for(lambda name=name: _assigned(fleet, name) == 2, 60, "given two partitions")  # type: ignore[misc]
            stream.wait_for_more(5 * RATE)
            began = time.monotonic()
            starts = case.fault(fleet, stream)
            _wait_caught_up(reader, stream)
            ended = time.monotonic()
            sent = fleet.finish(stream)
            wait_until(lambda: len(reader.seen) == len(sent), 60, "the reader to see all")
        assert_exactly_once(service, sent)
    silences = []
    for partition in {event.partition for event in sent}:
        times = sorted(reader.seen[event.id] for event in sent if event.partition == partition)
        silences += [later - earlier for earlier, later in pairwise(times) if later > began and earlier < ended]
    return max(silences), starts


def _assigned(fleet: Fleet, instance_id: str) -> float:
    return fleet[instance_id].metrics().get(m.ASSIGNED.name, 0)


def _start(fleet: Fleet, instance_id: str) -> float:
    began = time.monotonic()
    fleet.start(instance_id)
    fleet[instance_id].wait_for(lambda: f"-{instance_id}, runs " in fleet[instance_id].log, 60, "started")
    return time.monotonic() - began


def _wait_caught_up(reader: Reader, stream: Stream) -> None:
    """Wait until the results of all events acknowledged so far are visible, and those of some more seconds."""
    stream.wait_for_more(3 * RATE)
    due = [event.id for event in list(stream.acknowledged)]
    wait_until(lambda: all(event_id in reader.seen for event_id in due), 60, "the workers to catch up")


def _write(found: list[Silence]) -> None:
    about = machine("maven")
    report = {"machine": about, "rounds": ROUNDS, "events_per_second": RATE, "cases": [asdict(line) for line in found]}
    (RESULTS / "recovery.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    lines = [
        "# Recovery",
        "",
        f"Longest time without a result of any one input partition, as a read-committed reader sees it, in {ROUNDS} rounds; two",
        f"workers, 4 partitions, {RATE} events/s, `delivery: exactly_once`; nothing lost, doubled or reordered in any of them.",
        f"Machine: {', '.join(f'{name} {value}' for name, value in about.items())}; the broker shares it.",
        "",
        "| what happens to a worker | median | worst | aim | of it a worker's start |",
        "|---|---|---|---|---|",
        *(
            f"| {line.case} | {line.median:.1f} s | {line.worst:.1f} s | {line.aim} | "
            f"{f'{line.start:.1f} s' if line.start else ''} |"
            for line in found
        ),
    ]
    (RESULTS / "recovery.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
