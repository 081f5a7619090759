"""`millstream demo --reload`: version 2 of the model arrives in the repository while the events flow. The workers follow it."""

import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import polars as pl
import yaml
from rich.console import Console

from millstream.consumers.demo.collector import Collector
from millstream.consumers.demo.feeder import Feeder, steady
from millstream.consumers.demo.flights import LATER_MONTHS, departures
from millstream.consumers.demo.old_form import take_inputs_of_version_2
from millstream.consumers.demo.results import Results
from millstream.consumers.demo.scene import PARTITIONS, Scene, scene
from millstream.consumers.demo.stream import FlightStream
from millstream.consumers.demo.workers import Workers
from millstream.consumers.schema_store import open_store
from millstream.inference.auc import auc
from millstream.pipeline.loading import load_pipeline
from millstream.topics.records import RecordWriter

POLL_INTERVAL = "500ms"  # how often the workers look at the repository
VERSIONS = (1, 2)
STALL_TIMEOUT = 30.0  # the demo gives up after this many seconds without a result, while events wait for one
STOPPED_EARLY = "Stopped before the first event."


@dataclass(frozen=True, slots=True)
class Options:
    """The command line's options."""

    events: int
    rate: float  # events per second
    workers: int
    bootstrap: str | None  # None: the embedded broker


def run_reload(options: Options, console: Console, stop: threading.Event) -> bool:
    """Run the demo; returns whether each event has one result, both versions answered, and the AUC is higher with version 2.

    Raises:
        DemoDataError: the flights can't be read, or a package is missing.
        WorkerError: a worker ended, or no more results come.
        BrokerUnreachableError, TopicError: from the given broker.
    """
    with ExitStack() as stack:
        placed = stack.enter_context(scene([1], options.bootstrap))
        repository = Repository(placed)
        _print(
            console,
            f"{options.events:,} departures from New York. The pipeline file says `version: latest`. At first, the repository "
            f"has version 1, which knows only the timetable.\nWill they arrive 15 minutes late or more? Starting ...",
        )
        workers = stack.enter_context(Workers(placed.pipelines, options.workers, PARTITIONS))
        stream = _stream(options, placed)
        sent_at = np.zeros(len(stream))
        collector = Collector(placed, stream, sent_at)
        writer = RecordWriter(placed.client, placed.input_topic)
        feeder = Feeder(stream, writer, due=steady(options.rate), answered=collector.answered, sent_at=sent_at)
        stack.callback(collector.stop)
        stack.callback(feeder.stop)
        collector.start()
        workers.wait_until_ready(stop)
        if stop.is_set():
            console.print(STOPPED_EARLY)
            return True
        feeder.start()
        show = Progress(stream, feeder, collector, console)
        _watch(show, repository, workers, stop)
        workers.stop()  # before the last read: a draining worker may still write
        collector.stop()
        return show.conclude()


class Repository:
    """The model repository of the demo, to which version 2 comes later."""

    def __init__(self, placed: Scene) -> None:
        """Put version 1 into the form of version 2, take version 2 away, and let the pipeline follow the latest version."""
        self._models = placed.folder / "models" / "flights-delay"
        self._waiting = self._models / "version-2"  # its name is no number, so it is no version yet
        take_inputs_of_version_2(self._models)
        (self._models / "2").rename(self._waiting)
        path = placed.pipelines[1].path
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        content["model"] |= {"version": "latest", "poll_interval": POLL_INTERVAL}
        path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
        placed.pipelines[1] = load_pipeline(path, {})

    def add_version_2(self) -> None:
        """Version 2 appears with all of its files."""
        self._waiting.rename(self._models / "2")


class Progress:
    """Prints a line a second: how many predictions each version made, and how well they rank the outcomes known so far."""

    def __init__(self, stream: FlightStream, feeder: Feeder, collector: Collector, console: Console) -> None:
        self._stream = stream
        self.feeder = feeder
        self.collector = collector
        self._console = console
        self._started = time.monotonic()
        self._added: float | None = None  # when version 2 came, seconds since the start
        self._switched = False

    @property
    def results(self) -> Results:
        """The predictions of all versions."""
        return self.collector.results[1]

    def added(self) -> None:
        """Note that version 2 is in the repository."""
        self._added = time.monotonic() - self._started
        self._say(
            f"{self._added:5.1f} s  --> version 2 is in the repository now. It also knows how late each flight left."
        )

    def show(self) -> None:
        """Print a line, and say once that version 2 answers."""
        now = time.monotonic() - self._started
        if self._added is not None and not self._switched and len(self.results.scores_of(2)[0]):
            self._switched = True
            self._say(f"{now:5.1f} s  --> version 2 answers, {now - self._added:.1f} s later. No worker restarted.")
        parts = [f"{now:5.1f} s  sent {self.feeder.sent:7,}  without a result {self._unanswered():5,}"]
        for version in VERSIONS:
            count, area = len(self.results.scores_of(version)[0]), self.area(version)
            parts.append(f"version {version}: {count:7,} predictions, AUC {'-' if area is None else f'{area:.3f}'}")
        self._say("  |  ".join(parts))

    def area(self, version: int) -> float | None:
        """The AUC over the version's flights that have landed by now; None: there are too few."""
        numbers, scores = self.results.scores_of(version)
        known = self._stream.landed(numbers, max(self.feeder.sent - 1, 0)) if len(numbers) else np.empty(0, np.bool_)
        late = self._stream.late(numbers[known].tolist())
        return auc(late, pl.Series(scores[known])) if late.n_unique() == len(VERSIONS) else None

    def conclude(self) -> bool:
        """Print the end, and return whether all is as it should be."""
        tally = self.results.tally(self.feeder.sent)
        counts = [len(self.results.scores_of(version)[0]) for version in VERSIONS]
        areas = [self.area(version) for version in VERSIONS]
        self._say(
            f"\n{tally.predicted:,} predictions for {tally.sent:,} events: {counts[0]:,} by version 1, {counts[1]:,} by "
            f"version 2, {tally.unanswered} without a result, {tally.duplicates} twice"
        )
        for version, area in zip(VERSIONS, areas, strict=True):
            said = "unknown: too few flights have landed" if area is None else f"{area:.3f}"
            self._say(f"  version {version}: AUC {said}, on the outcomes of the flights that have landed")
        first, second = areas
        better = first is not None and second is not None and second > first
        good = tally.adds_up and not tally.duplicates and sum(counts) == tally.predicted and min(counts) > 0 and better
        self._say("No event was lost, and the AUC went up." if good else "This is not as it should be.")
        return good

    def _unanswered(self) -> int:
        return max(self.feeder.sent - self.collector.answered(), 0)

    def _say(self, text: str) -> None:
        _print(self._console, text)


def _watch(show: Progress, repository: Repository, workers: Workers, stop: threading.Event) -> None:
    """Add version 2 at half of the events, and show the progress until all events have results. Raises WorkerError."""
    feeder, collector = show.feeder, show.collector
    half, added = feeder.events // 2, False
    answered, moved = 0, time.monotonic()
    shown = 0.0
    while feeder.is_alive() or collector.answered() < feeder.sent:
        time.sleep(0.05)
        if stop.is_set():
            feeder.stop()
        if not added and feeder.sent >= half:
            repository.add_version_2()
            show.added()
            added = True
        now = time.monotonic()
        if now - shown >= 1.0:
            workers.check()
            _check(feeder, collector)
            show.show()
            shown = now
        if collector.answered() > answered or collector.answered() == feeder.sent:
            answered, moved = collector.answered(), now
        elif now - moved > STALL_TIMEOUT:
            raise workers.logs()
    _check(feeder, collector)
    show.show()


def _check(feeder: Feeder, collector: Collector) -> None:
    """Raise the error that ended one of the threads, if there is one."""
    for failure in (feeder.failure, collector.failure):
        if failure is not None:
            raise failure


def _stream(options: Options, placed: Scene) -> FlightStream:
    pipeline = placed.pipelines[1]
    assert pipeline.input.schema_name is not None
    schema = open_store(pipeline).by_name(pipeline.input.schema_name)
    flights = departures(LATER_MONTHS)
    return FlightStream(flights, events=min(options.events, len(flights)), broken=0, schema=schema)


def _print(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
