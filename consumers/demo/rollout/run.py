"""Runs the rollout demo: starts worker and autopilot, feeds flights, lets version 3 arrive, and checks what came true."""

import json
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import polars as pl
from rich.console import Console

from millstream.consumers.autopilot.metrics import ACTIVE
from millstream.consumers.autopilot.names import group_of
from millstream.consumers.demo.flights import ARRIVAL_SCHEMA, LATER_MONTHS, departures
from millstream.consumers.demo.rollout.account import Answer, account
from millstream.consumers.demo.rollout.answers import read_answers
from millstream.consumers.demo.rollout.eye import Eye
from millstream.consumers.demo.rollout.feed import Feed, Flights
from millstream.consumers.demo.rollout.models import ALIAS, Repository
from millstream.consumers.demo.rollout.screen import LiveScreen, PlainScreen, Screen
from millstream.consumers.demo.rollout.story import BETTER, BROKEN, expectations, rollout_of
from millstream.consumers.demo.rollout.summary import summary
from millstream.consumers.demo.scene import Scene, scene
from millstream.consumers.demo.waiting import wait_until
from millstream.consumers.observability.metric import Metric
from millstream.consumers.observability.metrics import DEAD_LETTERS, PREDICTIONS, READY
from millstream.consumers.rollout.progress import ENDED
from millstream.consumers.rollout.record import RolloutRecord
from millstream.consumers.rollout.slots import percent
from millstream.consumers.schema_store import open_store
from millstream.consumers.supervision.child import CommandProcess

MODEL = "flights-delay"
BASELINE = 1
STEPS = (20, 50)  # percent; the first one is large enough to be judged in seconds
SECTIONS: Mapping[str, Any] = {
    "model": {"name": MODEL, "repository": "models", "poll_interval": "1s"},
    "shadows": [{"version": BETTER, "name": "better", "max_load": 1}],
    "labels": {
        "topic": "flights-arrivals",
        "schema": "flight-arrival",
        "event_id": "id",
        "value": "late",
        "wait": "3s",
        "early": "10s",
    },
    "rollout": {
        "strategy": "canary",
        "candidate": ALIAS,
        "start_after_shadow": "8s",
        "steps": list(STEPS),
        "bake": "5s",
        "watch": "5s",
        "least_labels": 500,
        "metrics": {
            "accuracy": {"margin": 0.05},
            "errors": {"margin": 0.02},
            "dead_letters": {"margin": 0.02},
            "latency": {"quantile": 0.5, "at_most": 10},
        },
    },
}
"""Everything is much shorter than in earnest, and the margins are wider: a minute has few labels. A model call takes 0.3 ms, so
on a busy machine most of its time is that of other processes."""
START_TIMEOUT = 60.0  # seconds until worker and autopilot are ready
LONGEST = 300.0  # seconds of events, after which the demo gives up
AFTER = 3.0  # seconds of events after the end of a rollout
PACE = 0.5  # seconds between two looks
HOLDS = (": holds: ", ": the rollout stays as it is: ")
"""What precedes the reason in autopilot's log, when nothing changes."""
DRAIN_TIMEOUT = 60.0  # seconds until the last events are answered


@dataclass(frozen=True, slots=True)
class Options:
    """The command line's options."""

    rate: float  # events per second
    plain: bool  # print lines instead of a live screen
    bootstrap: str


def run_rollout(options: Options, console: Console, stop: threading.Event) -> bool:
    """Run the demo; returns whether all of it came true, and each event has one prediction of the version that it names.

    Raises:
        DemoDataError: the flights can't be read, or a package is missing.
        WorkerError: a process ended, or did not start.
        BrokerUnreachableError, TopicError: from the broker.
    """
    flights = departures(LATER_MONTHS)
    with ExitStack() as stack:
        placed = stack.enter_context(scene([BASELINE], options.bootstrap, sections=SECTIONS))
        show = Show(placed, flights, options.rate, stack)
        show.start(console, stop)
        screen: Screen = PlainScreen(console) if options.plain else LiveScreen(console)
        with screen:
            show.watch(screen, stop)
        answers, sent = show.drain()
        good = show.conclude(console, answers, sent)
        console.print(
            f"\nThe demo's topics and groups on {placed.bootstrap} are deleted now.", highlight=False, soft_wrap=True
        )
        return good


class Show:
    """The parts of the demo while it runs."""

    def __init__(self, placed: Scene, flights: pl.DataFrame, rate: float, stack: ExitStack) -> None:
        """Prepare. `stack` ends all parts."""
        self._pipeline = placed.pipelines[BASELINE]
        self._placed = placed
        self._flights = Flights(flights)
        self._repository = Repository(placed.folder / "models" / MODEL, flights)
        self._stack = stack
        schemas = self._pipeline.schemas.directory
        assert schemas is not None  # the example's
        (schemas / "2-flight-arrival.avsc").write_text(json.dumps(ARRIVAL_SCHEMA), encoding="utf-8")
        store = open_store(self._pipeline)
        self._feed = Feed(self._pipeline, store, self._flights, rate)
        self._eye = stack.enter_context(Eye(self._pipeline, store, BASELINE))
        placed.groups.append(group_of(self._pipeline))
        self._hold = ""
        self._statuses: list[int] = []  # with which the processes ended
        self._has_arrived = False  # version 3
        self._ended: float | None = None  # when the newest rollout ended, on the monotonic clock

    def start(self, console: Console, stop: threading.Event) -> None:
        """Start worker, autopilot and feed. Raises WorkerError: one doesn't start."""
        console.print(
            f"Version {BASELINE} predicts which departures from New York will arrive late, and version {BETTER} is its shadow. "
            "`millstream autopilot` does the rest. Starting ...",
            soft_wrap=True,
            highlight=False,
            markup=False,
        )
        path = self._pipeline.path
        self._worker = self._stack.enter_context(CommandProcess("work", path))
        self._autopilot = self._stack.enter_context(CommandProcess("autopilot", path, log=self._take_log))
        wait_until(partial(_shows, self._worker, READY), START_TIMEOUT, "the worker to be ready", stop)
        wait_until(partial(_shows, self._autopilot, ACTIVE), START_TIMEOUT, "the autopilot to be active", stop)
        self._stack.callback(self._feed.stop)
        self._feed.start()

    def watch(self, screen: Screen, stop: threading.Event) -> None:
        """Show what happens until both rollouts have ended, `stop` is set, or it takes too long. Raises WorkerError."""
        started = time.monotonic()
        while not stop.wait(PACE) and (now := time.monotonic() - started) < LONGEST:
            self._check()
            for record in self._eye.changes():
                self._ended = time.monotonic() if record.state in ENDED else None
                screen.tell(f"{now:5.1f} s  {told_change(record)}")
                self._name_in_repository(record)
            screen.show(self._eye.look(now, self._feed.sent, self._hold))
            if self._ended is None or time.monotonic() - self._ended < AFTER:
                continue
            if self._has_arrived or not rollout_of(self._eye.records, BETTER):
                return
            self._repository.add_version_3()
            self._has_arrived, self._ended = True, None
            screen.tell(
                f"{now:5.1f} s  --> version {BROKEN} arrives in the repository: its departure delays are mixed up"
            )

    def drain(self) -> tuple[list[Answer], int]:
        """Stop, and read all predictions. Returns them, and the number of events."""
        self._feed.stop()
        self._check()
        sent = self._feed.sent

        def answered() -> bool:
            found = self._worker.metrics()
            return found.get(PREDICTIONS.name, 0) + found.get(DEAD_LETTERS.name, 0) >= sent - 0.5

        wait_until(answered, DRAIN_TIMEOUT, "the last predictions", threading.Event())
        self._statuses = [self._autopilot.stop(), self._worker.stop()]
        self._eye.changes()
        answers = read_answers(self._placed, self._pipeline.output.topic, self._flights.number_of)
        return list(answers), sent

    def conclude(self, console: Console, answers: Sequence[Answer], sent: int) -> bool:
        """Print the summary; returns whether all is as it should be."""
        records = self._eye.records
        rows = self._flights.rows(0, sent)
        scores = self._repository.scores(rows)
        counted = account(sent, answers, {own.revision: own for own in records}, scores, BASELINE)
        expected = expectations(records, [100 * step for step in STEPS])
        text = summary(counted, records, answers, rows["late"], expected)
        console.print(f"\n{text}", markup=False, highlight=False, soft_wrap=True)
        return counted.adds_up and all(own.came_true for own in expected) and not any(self._statuses)

    def _name_in_repository(self, record: RolloutRecord) -> None:
        """The alias follows the rollout, as people let it: otherwise the older version would be the next candidate."""
        if record.action == "start":
            self._repository.name(record.variants[-1].version)

    def _check(self) -> None:
        """Raise the error that ended a part, if there is one."""
        self._worker.check()
        self._autopilot.check()
        if self._feed.failure is not None:
            raise self._feed.failure

    def _take_log(self, line: str) -> None:
        """Called from the thread that reads autopilot's log."""
        for mark in HOLDS:
            _, found, reason = line.partition(mark)
            if found:
                self._hold = reason


def _shows(process: CommandProcess, metric: Metric) -> bool:
    """Whether a gauge of the process is 1."""
    return process.metrics().get(metric.name, 0) == 1


def told_change(record: RolloutRecord) -> str:
    """A change and its reason, on one line."""
    shares = ", ".join(
        f"version {own.version} {percent(share)}" for own, share in zip(record.variants, record.shares, strict=True)
    )
    return f"{record.action} by {record.by}: {shares}, {record.state} ({record.reason})"
