"""The spike demo in simulated seconds: its own steps and the real decision, with workers, broker and clock made up."""

from __future__ import annotations

import argparse
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import StringIO
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Self

import pytest
import yaml
from rich.console import Console

from millstream.consumers.cli import run as run_command
from millstream.consumers.cli.usage.run import add_arguments
from millstream.consumers.demo import spike
from millstream.consumers.demo.example import example_folder
from millstream.consumers.demo.results import Tally
from millstream.consumers.observability.lag_metrics import LagFollower, LagLook
from millstream.consumers.supervision.autoscaler import Autoscaler, Fleet, Status
from millstream.consumers.supervision.capacity import Counters
from millstream.consumers.supervision.reading import Reading
from millstream.consumers.supervision.run_screen import status_text
from millstream.pipeline.loading import load_pipeline
from millstream.topics.lag import PartitionLag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from millstream.pipeline.pipeline import Pipeline

RATE = 1000.0  # events a second of one worker
START = 4.0  # seconds until a worker is ready


@dataclass
class World:
    """What there is one of: the clock, the topic, the run that reads it, and what the demo makes of them."""

    now: float = 0.0
    due: Callable[[float], float] | None = None  # since the feeder was started
    began: float = 0.0
    arrived: list[int] = field(default_factory=lambda: [0])  # sums, by second
    done: float = 0.0
    run: Run | None = None
    sizes: dict[float, int] = field(default_factory=dict)  # workers, by second, of whichever run there is

    def second(self) -> None:
        """Let one pass."""
        self.now += 1
        self.arrived.append(self.arrived[-1] if self.due is None else int(self.due(self.now - self.began)))
        if self.run is not None:
            self.sizes[self.now] = self.run.size
            self.run.second()

    def wait_until(self, condition: Callable[[], bool], timeout: float, what: str, stop: threading.Event) -> None:
        until = self.now + timeout
        while not condition():
            assert self.now < until and not stop.is_set(), f"waited {timeout:g} s for {what}"
            self.second()

    def answered(self) -> int:
        return int(self.done + 1e-6)


class Run:
    """`millstream run`, with the bounds that its options and the pipeline file give it."""

    def __init__(self, world: World, pipeline: Pipeline, options: tuple[str, ...], log: Callable[[str], None]) -> None:
        parser = argparse.ArgumentParser()
        add_arguments(parser)
        args = parser.parse_args([str(pipeline.path), *options])
        self._world = world
        self._autoscaler = Autoscaler(run_command._policy(args, pipeline, spike.PARTITIONS))
        self._follower = LagFollower()
        self._started = [world.now]  # each worker
        self._done = [0.0] * spike.MAX_WORKERS
        self._status: Status | None = None
        self._log = log
        assert world.run is None, "two runs at once"
        world.run = self

    @property
    def size(self) -> int:
        return len(self._started)

    def second(self) -> None:
        world = self._world
        ready = sum(world.now - at >= START for at in self._started)
        for number in range(ready):
            work = min(RATE, (world.arrived[-1] - world.done) / (ready - number))
            world.done += work
            self._done[number] += work
        readings = {
            number: Reading(
                world.now,
                1000 + number,
                number < ready,
                spike.PARTITIONS if number == 0 else 0,
                Counters(self._done[number], (self._done[number] / RATE, 0.0)),
                "",
            )
            for number in range(self.size)
        }
        status = self._status = self._autoscaler.step(world.now, Fleet(self.size, 0, readings), self._look())
        self._log(status_text(status, ""))
        wanted = status.decision.workers
        self._started = [*self._started, *[world.now] * (wanted - self.size)][:wanted]

    def _look(self) -> LagLook:
        world = self._world
        oldest = next((at for at, sent in enumerate(world.arrived) if sent > world.done + 1e-6), world.now)
        lags = []
        for number in range(spike.PARTITIONS):
            start, end = int(world.done / spike.PARTITIONS), int(world.arrived[-1] / spike.PARTITIONS)
            age = world.now - oldest
            lags.append(PartitionLag("events", number, start, start, end, end - start, True, age, 0))
        return self._follower.look(world.now, lags)

    def metrics(self) -> dict[str, float]:
        status = self._status
        if status is None or status.lag is None:
            return {}
        return {
            "millstream_workers_ready": status.ready,
            "millstream_workers_wanted": status.decision.workers,
            "millstream_worker_capacity_events_per_second": status.capacity or 0.0,
            "millstream_group_max_lag_seconds": status.lag.seconds or 0.0,
            "millstream_group_total_lag": status.lag.messages,
        }

    def stop(self) -> int:
        self._world.run = None
        return 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._world.run = None


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    content = yaml.safe_load((example_folder() / "pipeline.yaml").read_text(encoding="utf-8"))
    path = tmp_path / "pipeline.yaml"
    path.write_text(yaml.safe_dump({**content, **spike.SECTIONS}), encoding="utf-8")
    pipeline = load_pipeline(path, {})

    @contextmanager
    def scene(*_: object, **__: object) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(pipelines={1: pipeline}, client={}, input_topic="events", bootstrap="made up")

    def feeder(*_: object, due: Callable[[float], float], **__: object) -> _Feeder:
        return _Feeder(world, due)

    def collector(*_: object) -> SimpleNamespace:
        results = SimpleNamespace(tally=lambda sent: Tally(sent, world.answered(), 0, {}, 0, 0))
        nothing = lambda: None  # noqa: E731
        return SimpleNamespace(start=nothing, stop=nothing, failure=None, answered=world.answered, results={1: results})

    def command(_: str, __: Path, *options: str, log: Callable[[str], None] = lambda _: None) -> Run:
        return Run(world, pipeline, options, log)

    monkeypatch.setattr(spike, "scene", scene)
    monkeypatch.setattr(spike, "CommandProcess", command)
    monkeypatch.setattr(spike, "Feeder", feeder)
    monkeypatch.setattr(spike, "Collector", collector)
    monkeypatch.setattr(spike, "RecordWriter", lambda *_: None)
    monkeypatch.setattr(spike, "stream_of", lambda _: ())
    monkeypatch.setattr(spike, "wait_until", world.wait_until)
    monkeypatch.setattr(
        spike, "time", SimpleNamespace(monotonic=lambda: world.now, sleep=lambda _seconds: world.second())
    )
    return world


class _Feeder:
    failure = None

    def __init__(self, world: World, due: Callable[[float], float]) -> None:
        self._world = world
        self._due = due

    @property
    def sent(self) -> int:
        return self._world.arrived[-1]

    def start(self) -> None:
        self._world.due, self._world.began = self._due, self._world.now

    def stop(self) -> None:
        self._world.due = None

    def join(self) -> None:
        pass


def test_workers_come_with_the_spike_and_go_after_it(world: World, tmp_path: Path) -> None:
    """Once up and once down: what the demo does to learn a worker's rate brings none, that go and come again."""
    said = StringIO()
    assert spike.run_spike("made up", tmp_path / "spike.svg", Console(file=said), threading.Event())
    changes = [
        (at, after - before) for (_, before), (at, after) in pairwise(sorted(world.sizes.items())) if after != before
    ]
    ups = [change > 0 for _, change in changes]
    assert ups == sorted(ups, reverse=True), f"some that went came again: {changes}\n{said.getvalue()}"
    assert {ups[0], ups[-1]} == {True, False}, changes
    first = int(changes[0][0]) - 1  # the second that brought it
    came = world.arrived[first] - world.arrived[first - 1]
    assert came == pytest.approx(spike.SPIKE_FACTOR * spike.BASE_LOAD * RATE, abs=2), f"not the spike's load: {came}"
