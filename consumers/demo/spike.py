"""`millstream demo --load spike`: on a real broker, the load rises tenfold for a while, and the number of workers follows."""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from millstream.consumers.demo.chart import Line, Panel, chart
from millstream.consumers.demo.collector import Collector
from millstream.consumers.demo.feeder import Feeder
from millstream.consumers.demo.flights import LATER_MONTHS, departures
from millstream.consumers.demo.scene import Scene, scene
from millstream.consumers.demo.stream import FlightStream
from millstream.consumers.demo.waiting import wait_until
from millstream.consumers.schema_store import open_store
from millstream.consumers.supervision.child import CommandProcess
from millstream.pipeline.pipeline import Pipeline
from millstream.topics.records import RecordWriter

PARTITIONS, MAX_WORKERS = 8, 4
# With small transactions, the broker's commits limit a worker, not this machine's cores. The broker and the demo's own threads
# use the same cores. So even on two cores, several workers process more than one.
SECTIONS: Mapping[str, Any] = {
    "delivery": "exactly_once",
    "batch": {"max_events": 32, "max_wait": "5ms"},
    "limits": {"in_flight_events": 128},
    "scaling": {"min": 1, "max": MAX_WORKERS, "catch_up": "10s", "scale_down_after": "15s"},
}
MAX_EVENTS = 2_000_000
# Events of the first backlog. Each further backlog has twice as many, until one keeps a worker busy for `CALIBRATION_SECONDS`.
WARM_UP_EVENTS = 500
CALIBRATION_SECONDS = 4.0  # a backlog must last this long to measure a worker's rate
# A worker or a broker gets faster after its start. A rate counts as steady if it is at most this many times the rate before.
STEADY_RATIO = 1.2
BASE_LOAD = 0.15  # load before and after the spike, as a share of one worker's rate
SPIKE_FACTOR = 10  # load during the spike, as a multiple of the base load
BEFORE, SPIKE, AFTER = 15.0, 40.0, 45.0  # seconds before, during and after the spike
TARGET_LAG = 2.0  # seconds; the lag must fall to this after the spike
RECOVERY_TIMEOUT = 30.0  # seconds after the spike by which the lag must have fallen
START_TIMEOUT = 120.0  # seconds to wait for the first worker
ANSWER_TIMEOUT = 120.0  # seconds to wait for the results of all events sent


class Load:
    """Decides when events are due: `add` makes events due at once, `begin` starts the load with the spike."""

    def __init__(self) -> None:
        self.events = 0  # events made due by `add`
        self._base: float | None = None
        self._began = 0.0  # on the feeder's clock
        self._latest = 0.0

    def add(self, events: int) -> None:
        """Make this many more events due at once."""
        self.events += events

    def begin(self, base: float) -> None:
        """Start the load with `base` events per second."""
        self._began, self._base = self._latest, base

    def __call__(self, seconds: float) -> float:
        """How many events are due this many seconds after the feeder's start."""
        self._latest = seconds
        if self._base is None:
            return self.events
        passed = min(seconds - self._began, BEFORE + SPIKE + AFTER)
        spiked = min(max(passed - BEFORE, 0.0), SPIKE)
        return self.events + self._base * (passed + (SPIKE_FACTOR - 1) * spiked)


@dataclass(frozen=True, slots=True)
class Sample:
    """The state of the run."""

    at: float  # seconds since the load began
    sent: int
    ready: float  # workers that are ready
    wanted: float  # workers that the scaling decision wants
    lag_seconds: float
    lag_events: float


def _decisions(log: Sequence[str]) -> Iterator[str]:
    """The scaling decisions with their reasons, from the log of `millstream run`."""
    for line in log:
        _, _, reason = line.rpartition("  |  ")
        if " -> " in reason:
            yield reason


def run_spike(bootstrap: str, picture: Path, console: Console, stop: threading.Event) -> bool:
    """Run it and draw the chart; returns whether every event has exactly one prediction and the lag fell in time.

    Raises:
        DemoDataError: the flights can't be read.
        WorkerError: `millstream run` ended, or results are missing.
        BrokerUnreachableError, TopicError: from the broker.
    """
    with ExitStack() as stack:
        placed = stack.enter_context(scene([1], bootstrap, partitions=PARTITIONS, sections=SECTIONS))
        pipeline = placed.pipelines[1]
        stream = stream_of(pipeline)
        sent_at = np.zeros(len(stream))
        collector = Collector(placed, stream, sent_at)
        load = Load()
        writer = RecordWriter(placed.client, placed.input_topic)
        feeder = Feeder(
            stream, writer, due=load, answered=collector.answered, sent_at=sent_at, window=float(MAX_EVENTS)
        )
        stack.callback(collector.stop)
        stack.callback(feeder.stop)
        collector.start()
        feeder.start()
        rate = _learn(pipeline, load, collector, console, stop)
        log: list[str] = []
        run = stack.enter_context(CommandProcess("run", pipeline.path, "--plain", log=log.append))
        _wait_for_first_worker(run, stop)
        console.print(
            f"One worker processes {rate:,.0f} events/s here, in transactions of about 32 events. The demo now sends "
            f"{BASE_LOAD * rate:,.0f}/s for {BEFORE:g} s, {SPIKE_FACTOR} times that for {SPIKE:g} s, and then "
            f"{BASE_LOAD * rate:,.0f}/s again."
        )
        load.begin(BASE_LOAD * rate)
        samples = _watch(run, feeder, collector, console, stop)
        feeder.stop()
        feeder.join()
        wait_until(
            lambda: collector.answered() >= feeder.sent,
            ANSWER_TIMEOUT,
            "the results of the last events",
            threading.Event(),
        )
        decisions = list(_decisions(log))
        status = run.stop()
        collector.stop()  # reads the remaining records, so it would find a second prediction of an event
        for failure in (feeder.failure, collector.failure):
            if failure is not None:
                raise failure
        picture.write_text(_picture(samples, rate), encoding="utf-8")
        return _sum_up(samples, decisions, placed, collector, feeder.sent, console) and status == 0


def stream_of(pipeline: Pipeline) -> FlightStream:
    """The flights that the demo writes."""
    assert pipeline.input.schema_name is not None
    schema = open_store(pipeline).by_name(pipeline.input.schema_name)
    return FlightStream(departures(LATER_MONTHS), events=MAX_EVENTS, broken=0, schema=schema)


def _learn(pipeline: Pipeline, load: Load, collector: Collector, console: Console, stop: threading.Event) -> float:
    """Measure one worker's rate in events per second, with growing backlogs, until one lasts long enough and the rate is steady.

    This uses a separate `millstream run` that is limited to one worker. A free run would start a second worker for such a
    backlog, stop it before the spike, and start it again during the spike. The size would seem to flap.
    """
    console.print("Measuring with a backlog how many events/s one worker processes here ...")
    with CommandProcess("run", pipeline.path, "--plain", "--workers", "1") as run:
        _wait_for_first_worker(run, stop)
        events, seconds = WARM_UP_EVENTS // 2, 0.0
        before = done = 0.0  # events a second
        while seconds < CALIBRATION_SECONDS or done > STEADY_RATIO * before:
            events *= 2
            began = time.monotonic()
            load.add(events)
            wait_until(
                lambda: collector.answered() >= load.events, ANSWER_TIMEOUT, f"the results of {events} events", stop
            )
            seconds = time.monotonic() - began
            before, done = done, events / seconds
        # The capacity metric follows the worker's rate with a delay, so it is too low while the rate grows.
        rate = max(run.metrics().get("millstream_worker_capacity_events_per_second", 0.0), done)
        if status := run.stop():
            raise run.failed(f"ended with status {status}")
    return rate


def _wait_for_first_worker(run: CommandProcess, stop: threading.Event) -> None:
    wait_until(lambda: run.metrics().get("millstream_workers_ready", 0) > 0, START_TIMEOUT, "the first worker", stop)


def _watch(
    run: CommandProcess, feeder: Feeder, collector: Collector, console: Console, stop: threading.Event
) -> list[Sample]:
    """Take one sample per second until the load ends."""
    began = time.monotonic()
    samples: list[Sample] = []
    while (at := time.monotonic() - began) < BEFORE + SPIKE + AFTER and not stop.is_set():
        found = run.metrics()
        if "millstream_group_max_lag_seconds" not in found:  # the run or the broker didn't respond in time
            continue
        sample = Sample(
            at=at,
            sent=feeder.sent,
            ready=found.get("millstream_workers_ready", 0.0),
            wanted=found.get("millstream_workers_wanted", 0.0),
            lag_seconds=found.get("millstream_group_max_lag_seconds", 0.0),
            lag_events=found.get("millstream_group_total_lag", 0.0),
        )
        rate = (sample.sent - samples[-1].sent) / (at - samples[-1].at) if samples else 0.0
        samples.append(sample)
        console.print(
            f"{at:5.1f} s  in {rate:6,.0f}/s  workers {sample.ready:.0f} of {sample.wanted:.0f}  lag {sample.lag_events:6,.0f} "
            f"events, {sample.lag_seconds:4.1f} s  answered {collector.answered():,} of {sample.sent:,}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        time.sleep(max(began + at + 1 - time.monotonic(), 0.0))
    return samples


def back_after(samples: list[Sample], end: float) -> float | None:
    """How many seconds after `end` the lag stays under the target for good; None if it doesn't."""
    late = [sample.at for sample in samples if sample.lag_seconds > TARGET_LAG]
    if not late:
        return 0.0
    after = [sample.at for sample in samples if sample.at > late[-1]]
    return max(after[0] - end, 0.0) if after else None


def _sum_up(
    samples: list[Sample], decisions: list[str], placed: Scene, collector: Collector, sent: int, console: Console
) -> bool:
    tally = collector.results[1].tally(sent)
    once = tally.adds_up and tally.predicted == sent and not tally.duplicates
    back = back_after(samples, BEFORE + SPIKE)
    worst = max(sample.lag_seconds for sample in samples)
    returned = "not" if back is None else f"{back:.0f} s after the spike's end"
    sizes = f"{min(sample.ready for sample in samples):.0f} to {max(sample.ready for sample in samples):.0f}"
    lines = [
        "",
        f"Workers    {sizes}",
        *(f"           {decision}" for decision in decisions),
        f"Lag        {worst:.1f} s at most; under {TARGET_LAG:g} s again {returned}",
        f"Answers    {tally.predicted:,} predictions for {tally.sent:,} events, {tally.duplicates} written twice: "
        f"{'each event has its one' if once else 'DOES NOT ADD UP'}",
        "",
        f"The demo's topics and group on {placed.bootstrap} are deleted now.",
    ]
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
    return once and back is not None and back <= RECOVERY_TIMEOUT


def _picture(samples: list[Sample], rate: float) -> str:
    xs = [sample.at for sample in samples]
    arrivals = [(after.sent - before.sent) / (after.at - before.at) / rate for before, after in pairwise(samples)]
    return chart(
        f"millstream run under a spike: {SPIKE_FACTOR} times the load for {SPIKE:g} s",
        [
            Panel(
                f"workers, and what arrives in workers' worth (1 = {rate:,.0f} events/s)",
                [
                    Line("workers", "#c0392b", xs, [sample.ready for sample in samples], steps=True),
                    Line("wanted", "#e59866", xs, [sample.wanted for sample in samples], steps=True, dashed=True),
                    Line("arrives", "#888", xs[1:], arrivals, dashed=True),
                ],
            ),
            Panel(
                f"age of the oldest event, seconds (target {TARGET_LAG:g})",
                [Line("lag", "#2e86c1", xs, [sample.lag_seconds for sample in samples])],
            ),
            Panel("events behind", [Line("lag", "#2e86c1", xs, [sample.lag_events for sample in samples])]),
        ],
        band=(BEFORE, BEFORE + SPIKE),
    )
