"""Runs with a bug switched on: the checker finds the errors of each bug. With the same fault but no bug, it finds nothing."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from millstream.consumers.observability import metrics as m
from tests.broker.clients import wait_until
from tests.faults.buggy_worker import WENT_BACK
from tests.faults.checker import RIGHT
from tests.faults.service import all_committed, buggy, no_transaction_open, stopped, under_load, verdict_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker
    from tests.faults.checker import Verdict

pytestmark = pytest.mark.durable
CHECKPOINT = 20  # the fault strikes at this checkpoint, after some good ones


@pytest.mark.parametrize(
    ("bug", "found"),
    [("none", set()), ("offsets_first", {"lost", "skipped"})],
)
def test_crash_before_the_commit(kafka: Broker, tmp_path: Path, bug: str, found: set[str]) -> None:
    # A static member is back at once: the session's end need not be waited for.
    with under_load(tmp_path, kafka, seed=901, membership={"static": True}) as (service, fleet, stream):
        fleet.start("w0", program=buggy(bug, "die", CHECKPOINT))
        assert fleet["w0"].wait() == -signal.SIGKILL
        fleet.start("w0")
        assert _kinds(verdict_of(service, fleet.finish(stream))) == found


@pytest.mark.parametrize(
    ("bug", "found"),
    [
        ("none", set()),
        ("commits_what_it_should_abort", {"doubled"}),
        ("never_reads_again", {"lost", "skipped"}),
    ],
)
def test_abort(kafka: Broker, tmp_path: Path, bug: str, found: set[str]) -> None:
    with under_load(tmp_path, kafka, seed=902) as (service, fleet, stream):
        fleet.start("w0", program=buggy(bug, "abort", CHECKPOINT))
        fleet["w0"].wait_for(lambda: "the transaction is aborted" in fleet["w0"].log, 60, "told to abort")
        stream.wait_for_more(1000)
        assert _kinds(verdict_of(service, fleet.finish(stream))) == found


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize(("bug", "found"), [("none", set()), ("believes_the_client", {"doubled"})])
def test_client_that_gives_records_again(
    kafka: Broker, tmp_path: Path, bug: str, found: set[str], delivery: str
) -> None:
    with under_load(tmp_path, kafka, seed=906, delivery=delivery) as (service, fleet, stream):
        fleet.start("w0", program=buggy(bug, "go_back", CHECKPOINT))
        fleet["w0"].wait_for(lambda: WENT_BACK in fleet["w0"].log, 60, "at its twentieth poll")
        fleet.wait_committed(2000)
        assert ("it is read again from the committed offset" in fleet["w0"].log) == (bug == "none")
        assert _kinds(verdict_of(service, fleet.finish(stream))) == found


@pytest.mark.parametrize(("bug", "found"), [("none", set()), ("unfenced", {"doubled"})])
def test_sleep_with_an_open_transaction(kafka: Broker, tmp_path: Path, bug: str, found: set[str]) -> None:
    with under_load(tmp_path, kafka, seed=903) as (service, fleet, stream):
        fleet.start("w0", program=buggy(bug, "sleep", CHECKPOINT))
        wait_until(lambda: stopped(fleet["w0"]), 60, "the worker to stop itself")
        fleet.start("w1")
        fleet["w1"].wait_for(lambda: fleet["w1"].metrics().get(m.ASSIGNED.name) == 4, 60, "given all partitions")
        sent = stream.stop()
        # The other worker has written all results before the sleeper wakes.
        fleet["w1"].wait_for(lambda: all_committed(service), 60, "done")
        fleet["w0"].send(signal.SIGCONT)
        fleet["w0"].wait_for(lambda: fleet["w0"].get("/live")[0] == 200, 60, "awake")
        # Told to end at once, an unfenced sleeper might leave its transaction open instead of committing it.
        fleet["w0"].wait_for(lambda: no_transaction_open(service), 60, "at the end of its transaction")
        fleet["w0"].send(signal.SIGTERM)
        fleet.stop("w1")
        # The broker has ended the sleeper's transaction meanwhile, so it is fenced.
        assert fleet["w0"].wait() in {0, 1}
        assert _kinds(verdict_of(service, sent)) == found


def test_newest_first(kafka: Broker, tmp_path: Path) -> None:
    with under_load(tmp_path, kafka, seed=904) as (service, fleet, stream):
        fleet.start("w0", program=buggy("newest_first", "none", CHECKPOINT))
        stream.wait_for_more(2000)
        assert _kinds(verdict_of(service, fleet.finish(stream))) == {"reordered"}


def test_early_acknowledgement(kafka: Broker, tmp_path: Path) -> None:
    with under_load(tmp_path, kafka, seed=905, delivery="at_least_once") as (service, fleet, stream):
        fleet.start("w0", program=buggy("acknowledges_early", "none", CHECKPOINT))
        stream.wait_for_more(1000)
        sent = stream.stop()
        fleet["w0"].wait_for(lambda: all_committed(service), 60, "sure that it is done")
        fleet.kill("w0")
        assert _kinds(verdict_of(service, sent)) == {"lost", "skipped"}


def _kinds(verdict: Verdict) -> set[str]:
    """The kinds of errors that the checker found."""
    return {name for name in verdict.__slots__ if getattr(verdict, name) != getattr(RIGHT, name)}
