"""Runs the demo: starts broker and workers, writes events, reads the results, and checks that every event has one."""

import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console

from millstream.consumers.demo.collector import Collector
from millstream.consumers.demo.feeder import Feeder, steady
from millstream.consumers.demo.flights import LATER_MONTHS, departures
from millstream.consumers.demo.scene import PARTITIONS, Scene, scene
from millstream.consumers.demo.screen import LiveScreen, Look, PlainScreen, Screen, VersionLook
from millstream.consumers.demo.served import fetch_server, named, served, sum_of_requests
from millstream.consumers.demo.stream import FlightStream
from millstream.consumers.demo.summary import Sent, sample, summary
from millstream.consumers.demo.workers import Workers
from millstream.consumers.model_servers.errors import StopRequested
from millstream.consumers.model_servers.triton import Triton
from millstream.consumers.schema_store import open_store
from millstream.topics.records import RecordWriter

STOPPED_EARLY = "Stopped before the first event."
STALL_TIMEOUT = 30.0  # the demo gives up after this many seconds without a result, while events wait for one


@dataclass(frozen=True, slots=True)
class Options:
    """The command line's options."""

    events: int
    rate: float  # events per second; 0: as fast as results come
    workers: int  # workers of each version
    versions: Sequence[int]
    broken: int  # number of events that can't be processed
    plain: bool  # print one line per second instead of a table
    bootstrap: str | None  # None: the embedded broker
    cache: Path | None = None  # folder that keeps the model's server; None: the workers run the model themselves


def run_demo(options: Options, console: Console, stop: threading.Event) -> bool:
    """Run the demo; returns whether every event has a result. If `stop` is set, send no more events, drain, and sum up.

    Raises:
        DemoDataError: the flights can't be read, or a package is missing.
        ServerMissing, ServerFailed: the model's server can't be fetched, or ended.
        WorkerError: a worker ended, or no more results come.
        BrokerUnreachableError, TopicError: from the given broker.
    """
    try:
        with ExitStack() as stack:
            environment = None
            if options.cache is not None:
                environment = fetch_server(options.cache, lambda line: _print(console, line), stop)
            placed = stack.enter_context(scene(options.versions, options.bootstrap))
            _print(console, _opening(options, placed))
            server = None
            if environment is not None:
                server = stack.enter_context(served(placed, environment, stop))
                _print(
                    console, f"The model runs on a server: {named(server)}. The workers call it: `executor: kserve`."
                )
            return _run(options, placed, server, stack, console, stop)
    except StopRequested:
        console.print(STOPPED_EARLY)
        return True


def _run(
    options: Options, placed: Scene, server: Triton | None, stack: ExitStack, console: Console, stop: threading.Event
) -> bool:
    """Send the events through workers, and sum up; returns whether every event has a result."""
    workers = stack.enter_context(Workers(placed.pipelines, options.workers, PARTITIONS))
    stream = _stream(options, placed)
    feeder, collector = _threads(options, placed, stream)
    stack.callback(collector.stop)
    stack.callback(feeder.stop)
    collector.start()
    workers.wait_until_ready(stop)
    if stop.is_set():
        console.print(STOPPED_EARLY)
        return True
    feeder.start()
    _watch(options, placed, stream, Watched(feeder, collector, workers, server), stop, console)
    workers.stop()  # before the last read: a draining worker may still write
    collector.stop()
    broken = sum(spot < feeder.sent for spot in stream.breakages)
    sent = Sent(feeder.sent, feeder.seconds, options.rate, feeder.held_back, broken)
    model = "" if server is None else sum_of_requests(server)
    _print(console, f"\n{summary(sent, stream, collector.results, model=model)}")
    if not placed.embedded:
        console.print(f"\nThe demo's topics and groups on {placed.bootstrap} are deleted now.", markup=False)
    return all(result.tally(feeder.sent).adds_up for result in collector.results.values())


def _print(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _opening(options: Options, placed: Scene) -> str:
    count = f"{options.workers} worker{'s' if options.workers > 1 else ''}"
    broker = "an embedded broker" if placed.embedded else f"the broker at {placed.bootstrap}"
    versions = " and ".join(f"version {version}" for version in options.versions)
    each = ", each with a consumer group of its own" if len(options.versions) > 1 else ""
    return (
        f"{options.events:,} departures from New York, September 2013 on, through {broker}; {count} for {versions}{each}.\n"
        "Will they arrive 15 minutes late or more? Starting ..."
    )


def _stream(options: Options, placed: Scene) -> FlightStream:
    pipeline = next(iter(placed.pipelines.values()))
    assert pipeline.input.schema_name is not None
    schema = open_store(pipeline).by_name(pipeline.input.schema_name)
    return FlightStream(departures(LATER_MONTHS), events=options.events, broken=options.broken, schema=schema)


def _threads(options: Options, placed: Scene, stream: FlightStream) -> tuple[Feeder, Collector]:
    writer = RecordWriter(placed.client, placed.input_topic)
    sent_at = np.zeros(len(stream))
    collector = Collector(placed, stream, sent_at)
    return Feeder(stream, writer, due=steady(options.rate), answered=collector.answered, sent_at=sent_at), collector


@dataclass(frozen=True, slots=True)
class Watched:
    """What runs during the demo."""

    feeder: Feeder
    collector: Collector
    workers: Workers
    server: Triton | None  # of the model; None: the workers run the model themselves

    def check(self) -> None:
        """Raise the error that ended one of them, if there is one."""
        if self.server is not None:
            self.server.check()
        self.workers.check()
        for failure in (self.feeder.failure, self.collector.failure):
            if failure is not None:
                raise failure

    def done(self) -> bool:
        """Whether all events are sent and have results."""
        return not self.feeder.is_alive() and self.collector.answered() >= self.feeder.sent


def _watch(
    options: Options, placed: Scene, stream: FlightStream, watched: Watched, stop: threading.Event, console: Console
) -> None:
    """Show the progress until all events are sent and have results.

    Raises:
        WorkerError: no more results come.
    """
    model = "" if watched.server is None else f"The model runs on {named(watched.server)}. "
    screen: Screen = PlainScreen(console) if options.plain else LiveScreen(console, note=model)
    pace = 1.0 if options.plain else 0.5  # seconds between two looks
    eye = Eye(placed, stream, watched)
    answered, moved = 0, time.monotonic()
    with screen:
        while not watched.done():
            due = time.monotonic() + pace
            while time.monotonic() < due and not watched.done():
                time.sleep(0.02)
                if stop.is_set():
                    watched.feeder.stop()
            watched.check()
            screen.show(eye.look())
            now, before = watched.collector.answered(), answered
            answered = now
            if now > before or now == watched.feeder.sent:
                moved = time.monotonic()
            elif time.monotonic() - moved > STALL_TIMEOUT:
                raise watched.workers.logs()


class Eye:
    """Takes snapshots of the demo for the screen. Rates cover the time since the last one."""

    def __init__(self, placed: Scene, stream: FlightStream, watched: Watched) -> None:
        self._placed = placed
        self._stream = stream
        self._watched = watched
        self._started = self._then = time.monotonic()
        self._sent = 0
        self._answered = dict.fromkeys(placed.pipelines, 0)
        self._batches = dict.fromkeys(placed.pipelines, (0, 0))

    def look(self) -> Look:
        """The demo's current state."""
        now = time.monotonic()
        passed, self._then = now - self._then, now
        feeder, results = self._watched.feeder, self._watched.collector.results
        sent, before = feeder.sent, self._sent
        self._sent = sent
        latest = min((result.latest for result in results.values() if result.latest is not None), default=None)
        return Look(
            seconds=now - self._started,
            sent=sent,
            events=len(self._stream),
            rate=(sent - before) / passed,
            versions=[self._version(version, passed, sent) for version in results],
            sample="" if latest is None else sample(self._stream, results, latest),
        )

    def _version(self, version: int, passed: float, sent: int) -> VersionLook:
        result = self._watched.collector.results[version]
        answered, before = result.answered, self._answered[version]
        self._answered[version] = answered
        (batches, events), (batches_before, events_before) = (
            self._watched.workers.batches(version),
            self._batches[version],
        )
        self._batches[version] = (batches, events)
        new = batches - batches_before
        return VersionLook(
            version=version,
            tally=result.tally(sent),
            latency=result.recent_latency(),
            rate=(answered - before) / passed,
            batch_events=(events - events_before) / new if new else float("nan"),
            max_events=self._placed.pipelines[version].batch.max_events,
        )
