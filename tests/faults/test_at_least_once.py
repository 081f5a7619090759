"""At least once: killed workers may double results, and never lose one."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from millstream.consumers.observability import metrics as m
from tests.broker.clients import wait_until
from tests.consumers.service import id_of
from tests.faults.checker import RIGHT
from tests.faults.service import committed, under_load, verdict_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.broker.choice import Broker
    from tests.consumers.service import Service
    from tests.faults.checker import Sent
    from tests.faults.load import Stream
    from tests.faults.service import Fleet

STEADY_RATE = 1000  # events a second, for two workers
COMMIT_EVERY = 100  # ms, the default of `commit_every`
MOST_DOUBLED = 150  # results that one kill may double


@pytest.mark.durable
def test_killed_workers_lose_nothing(kafka: Broker, tmp_path: Path, full: bool) -> None:
    with under_load(tmp_path, kafka, seed=801, delivery="at_least_once") as (service, fleet, stream):
        fleet.start("w0", "w1")
        for _ in range(10 if full else 1):
            fleet.wait_written()
            fleet.kill("w0", "w1")
            # Nothing is committed that has no result, at any time.
            assert verdict_of(service, list(stream.acknowledged)).skipped == ()
            fleet.start("w0", "w1")
        sent = fleet.finish(stream)
        assert replace(verdict_of(service, sent), doubled=()) == RIGHT


@pytest.mark.durable
def test_killed_worker_doubles_few_results(kafka: Broker, tmp_path: Path) -> None:
    """A kill doubles the results that the worker wrote since its last commit.

    At this rate, a worker writes 50 results per commit interval. These are always allowed, because the kill may come just before
    a commit. A slow machine may write many more in one interval, so the results' timestamps decide which ones were written in it.
    The test counts only the results before it. Of these, 100 are allowed: then the commit was late by 200 ms.
    """
    kills = [0.0]  # ms since the epoch
    with under_load(tmp_path, kafka, seed=802, rate=STEADY_RATE, delivery="at_least_once") as (service, fleet, stream):
        fleet.start("w0", "w1")
        for victim in ("w0", "w1", "w0", "w1", "w0"):
            _wait_until_steady(service, fleet, stream)
            fleet.kill(victim)
            kills.append(time.time() * 1000)
            fleet.start(victim)
        _wait_until_steady(service, fleet, stream)
        sent = fleet.finish(stream)
        assert replace(verdict_of(service, sent), doubled=()) == RIGHT
        doubled = _first_results_of_doubled(service, sent)
    own_interval = STEADY_RATE // 2 * COMMIT_EVERY // 1000
    for earlier, later in pairwise([*kills, float("inf")]):
        per_partition = [[at for at in written if earlier < at <= later] for written in doubled.values()]
        late = sum(at < max(written) - COMMIT_EVERY for written in per_partition for at in written)
        assert late <= MOST_DOUBLED - own_interval, f"{sum(map(len, per_partition))} results were doubled"


def _wait_until_steady(service: Service, fleet: Fleet, stream: Stream) -> None:
    """Wait until both workers have partitions and no backlog. Under backlog, commits are rarer, and a kill doubles more."""

    def steady() -> bool:
        done = committed(service)
        shared = all(fleet[name].metrics().get(m.ASSIGNED.name) == 2 for name in ("w0", "w1"))
        return shared and done is not None and done >= len(stream.acknowledged) - STEADY_RATE // 2

    fleet.wait_ready()
    wait_until(steady, 60, "both workers to have caught up")
    stream.wait_for_more(STEADY_RATE)
    wait_until(steady, 60, "both workers to have caught up")


def _first_results_of_doubled(service: Service, sent: Sequence[Sent]) -> dict[int, list[int]]:
    """When the first results of the events with several results were written, in ms since the epoch, by input partition."""
    written: dict[str, list[int]] = defaultdict(list)
    for message in service.predictions():
        written[id_of(message)].append(message.timestamp()[1])
    found: dict[int, list[int]] = defaultdict(list)
    for event in sent:
        if len(written[event.id]) > 1:
            found[event.partition].append(min(written[event.id]))
    return found
