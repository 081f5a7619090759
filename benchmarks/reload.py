"""What a reload costs: `python -m benchmarks.reload`.

One worker gets 1,000 events a second. In turns, its model stays the same, and changes every 10 s; at the end, it changes as often
as the worker follows. Each version has 64 MiB of weights. The latency counts from an event's due time until a reader has its
prediction (see `latency.py`). Results go to results/reload.json and reload.md.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.broker import real_broker
from benchmarks.errors import NoBrokerError, PeerFailedError
from benchmarks.latency import Latency, measure
from benchmarks.load import Load, vector_events
from benchmarks.machine import machine
from benchmarks.pages import write_results
from tests.consumers.processes import Worker
from tests.consumers.service import id_of, vector_service
from tests.consumers.serving.versions import delete_version, name_alias, write_version

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.broker.choice import Broker
    from tests.consumers.service import Service

RESULTS = Path(__file__).parent / "results"
RATE = 1000  # events a second
EVERY = 10.0  # seconds between two reloads
WEIGHTS = 64 << 20  # bytes of a version
POLL = 0.1  # seconds: how often the worker looks at the repository
LOOK = 0.25  # seconds between two looks at the worker's metrics, which take milliseconds of its CPU
MIB = 1 << 20
_BUSY = " **Other programs kept the machine busy, so these latencies say nothing about reloads. The memory does.**"


@dataclass(frozen=True, slots=True)
class Turn:
    """One measurement."""

    name: str
    latency: Latency
    reloads: int
    before: float  # resident MiB before the first reload
    peak: float  # the most while both versions are loaded
    after: float  # the most one second after a switch


class Reloads:
    """Writes the alias again and again, with the same version or the other one, and notes the worker's memory."""

    def __init__(self, worker: Worker, models: Path, every: float, *, changes: bool = True) -> None:
        """Args:
        worker: follows the alias.
        models: folder of the model's versions.
        every: seconds between two reloads; 0: as often as the worker follows.
        changes: False: the alias keeps its version. Looking at the worker takes CPU, so turns without reloads look, too.
        """
        self._worker = worker
        self._models = models
        self._every = every
        self._changes = changes
        self._stop = threading.Event()
        self._version = serving(worker)
        self.count = 0
        self.before = resident(worker.pid)
        self.peak = self.after = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Reload in a thread of its own."""
        threads = [threading.Thread(target=run) for run in (self._reload, self._observe)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()

    def _reload(self) -> None:
        while not self._stop.wait(self._every):
            if self._changes:
                self._version = 3 - self._version
            name_alias(self._models, champion=self._version)
            while serving(self._worker) != self._version and not self._stop.wait(LOOK):
                pass
            self.count += self._changes
            if self._every:
                time.sleep(1.0)
                self.after = max(self.after, resident(self._worker.pid))

    def _observe(self) -> None:
        while not self._stop.wait(0.01):
            self.peak = max(self.peak, resident(self._worker.pid))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reload", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="turns of each (default: %(default)s)")
    parser.add_argument("--seconds", type=int, default=40, help="of a turn (default: %(default)s)")
    parser.add_argument("--reloads", type=int, default=500, help="at least, at the end (default: %(default)s)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder (default: %(default)s)")
    args = parser.parse_args()
    try:
        with real_broker() as broker, tempfile.TemporaryDirectory() as made:
            report = {"machine": machine(broker.kind), **measured(broker, Path(made), args)}
    except (NoBrokerError, PeerFailedError) as error:
        print(error, file=sys.stderr)
        return 1
    write_results(args.results, "reload", report, markdown(report))
    return 0


def measured(broker: Broker, folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """All turns."""
    model = {"name": "vector", "version": "champion", "poll_interval": f"{POLL}s"}
    service = vector_service(folder, broker, model=model)
    models = folder / "models" / "vector"
    delete_version(models, 1)
    for number in (1, 2):
        write_version(models, number, weight_bytes=WEIGHTS)
    name_alias(models, champion=1)
    turns: list[Turn] = []
    load = round(os.getloadavg()[0], 1)
    with Worker(service.file) as worker:
        worker.wait_ready()
        _turn("warm-up", service, worker, models, EVERY, 10, changes=False)
        for _ in range(args.rounds):
            turns += [
                _turn("no reload", service, worker, models, EVERY, args.seconds, changes=False),
                _turn("every 10 s", service, worker, models, EVERY, args.seconds),
            ]
        soak: list[Turn] = []
        while sum(turn.reloads for turn in soak) < args.reloads:
            soak.append(_turn("all the time", service, worker, models, 0.0, args.seconds))
        time.sleep(2.0)  # the last old version is unloaded
        end = resident(worker.pid)
        if worker.stop() != 0:
            raise PeerFailedError(worker.log[-3000:])
    return {
        "load_average": load,
        "turns": [asdict(turn) for turn in turns],
        "soak": [asdict(turn) for turn in soak],
        "end_mib": end,
    }


def _turn(
    name: str, service: Service, worker: Worker, models: Path, every: float, seconds: int, *, changes: bool = True
) -> Turn:
    events = vector_events(RATE * seconds, seed=int(time.monotonic() * 1000))
    stamp = time.monotonic_ns() % 10**9
    ids = [f"{stamp:09d}{number:07d}" for number in range(RATE * seconds)]
    values = [value[:6] + one.encode() + value[22:] for one, value in zip(ids, events.values, strict=True)]
    load = Load(events.keys, values)
    reloads = Reloads(worker, models, every, changes=changes)
    with reloads.running():
        latency = measure(service.bootstrap, (service.inputs[0], service.output), load, RATE, id_of, ids)
    turn = Turn(name, latency, reloads.count, reloads.before, reloads.peak, reloads.after)
    print(turn, file=sys.stderr)
    return turn


def serving(worker: Worker) -> int:
    """The version that the worker serves."""
    for version in (1, 2):
        if worker.metrics().get(f"millstream_serving_model{{model=vector,version={version}}}") == 1:
            return version
    return 0


def resident(pid: int) -> float:
    """MiB of memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return round(pages * 4096 / MIB, 1)


def markdown(report: dict[str, Any]) -> str:
    """The report for people."""
    turns, soak = report["turns"], report["soak"]

    def p99(name: str) -> list[float]:
        return [turn["latency"]["p99"] for turn in turns if turn["name"] == name]

    ratio = median(a / b for a, b in zip(p99("every 10 s"), p99("no reload"), strict=True))
    busy = report["load_average"] > 1
    reloaded = [turn for turn in turns if turn["reloads"]]
    lines = [
        "# Reload",
        "",
        f"One worker at {RATE:,} events a second. Each version has {WEIGHTS // MIB} MiB of weights, and is loaded beside the one "
        "that answers. Latency in ms, from an event's due time until a reader has its prediction.",
        "",
        f"Machine: {', '.join(f'{name} {value}' for name, value in report['machine'].items())}. Its load average at the start: "
        f"{report['load_average']}.{_BUSY if busy else ''}",
        "",
        "| | reloads | p50 | p95 | p99 | most |",
        "|---|---|---|---|---|---|",
        *map(_row, [*turns, *soak]),
        "",
        *(
            []
            if busy
            else [f"p99 with a reload every 10 s over the one without, median of the rounds: {ratio:.2f}.", ""]
        ),
        f"Resident memory: {median(turn['before'] for turn in reloaded):.0f} MiB before a reload, "
        f"{max(turn['peak'] for turn in reloaded):.0f} MiB at most, "
        f"{max(turn['after'] for turn in reloaded):.0f} MiB at most one second after a switch. "
        f"After {sum(turn['reloads'] for turn in [*turns, *soak])} reloads: {report['end_mib']:.0f} MiB.",
    ]
    return "\n".join(lines) + "\n"


def _row(turn: dict[str, Any]) -> str:
    latency = turn["latency"]
    times = " | ".join(str(latency[name]) for name in ("p50", "p95", "p99", "most"))
    return f"| {turn['name']} | {turn['reloads']} | {times} |"


if __name__ == "__main__":
    sys.exit(main())
