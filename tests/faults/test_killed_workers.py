"""Workers that end in every way while events keep coming: each event has its one result, each key its order."""

from __future__ import annotations

import random
import signal
import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient

from millstream.consumers.observability import metrics as m
from millstream.pipeline.loading import load_pipeline
from millstream.schemas.native import VARIABLE, Native
from tests.broker.clients import wait_until
from tests.faults.service import assert_exactly_once, buggy, stopped, under_load

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.broker.choice import Broker
    from tests.faults.service import Fleet

pytestmark = pytest.mark.durable


def test_workers_killed_at_random_points(
    kafka: Broker, tmp_path: Path, full: bool, native_environ: Mapping[str, str]
) -> None:
    chance = random.Random(1)
    is_native = native_environ[VARIABLE] != Native.OFF
    kills, least = 0, (50 if full else 6) if is_native else (20 if full else 3)
    with under_load(tmp_path, kafka, seed=101) as (service, fleet, stream):
        fleet.start("w0", "w1", env=native_environ)
        fleet.wait_ready()
        assert ("MILLSTREAM_NATIVE=off" in fleet["w0"].log) is not is_native
        while kills < least:
            victims = chance.choice([("w0",), ("w1",), ("w0", "w1"), ("w0", "w1")])
            _go_on(fleet, chance)
            fleet.kill(*victims)
            fleet.start(*victims, env=native_environ)
            kills += len(victims)
        assert_exactly_once(service, fleet.finish(stream))


def _go_on(fleet: Fleet, chance: random.Random) -> None:
    """Wait until the workers have written some results, and some time longer. Sometimes kill them while they start or join."""
    if chance.random() < 0.2:
        time.sleep(chance.uniform(0, 4))
        return
    fleet.wait_written()
    time.sleep(chance.uniform(0, 0.5))


DEATHS = [
    ("die_in_the_model", 50),
    ("die_while_producing", 1000),
    ("die_before_the_offsets", 5),
    ("die", 5),
    ("die_after_the_commit", 5),
]
"""Where a worker dies, in the order of an event's path, and at which of its visits to this place."""


def test_worker_dies_at_each_step_of_an_events_way(kafka: Broker, tmp_path: Path) -> None:
    # A static member is back at once: the session's end need not be waited for.
    with under_load(tmp_path, kafka, seed=105, membership={"static": True}) as (service, fleet, stream):
        for fault, time_ in DEATHS:
            fleet.start("w0", program=buggy("none", fault, time_))
            assert fleet["w0"].wait() == -signal.SIGKILL
        fleet.start("w0")
        assert_exactly_once(service, fleet.finish(stream))


@pytest.mark.full
def test_workers_restarted_one_after_the_other(kafka: Broker, tmp_path: Path, full: bool) -> None:
    with under_load(tmp_path, kafka, seed=102) as (service, fleet, stream):
        fleet.start("w0", "w1")
        fleet.wait_ready()
        for _ in range(5 if full else 1):
            for instance_id in ("w0", "w1"):
                stream.wait_for_more(1000)
                fleet.stop(instance_id)
                fleet.start(instance_id)
                fleet.wait_ready()
        assert_exactly_once(service, fleet.finish(stream))


@pytest.mark.parametrize(
    "beyond",
    [
        pytest.param(2, marks=pytest.mark.full, id="partitions moved"),
        pytest.param(8, marks=pytest.mark.full, id="transaction timed out"),
    ],
)
def test_worker_stopped_for_longer_than_its_session_writes_nothing_of_what_has_moved(
    kafka: Broker, tmp_path: Path, beyond: float
) -> None:
    with under_load(tmp_path, kafka, seed=103) as (service, fleet, stream):
        fleet.start("w0", "w1")
        fleet.wait_ready()
        stream.wait_for_more(2000)
        fleet["w0"].send(signal.SIGSTOP)
        fleet["w1"].wait_for(lambda: fleet["w1"].metrics().get(m.ASSIGNED.name) == 4, 60, "given all partitions")
        time.sleep(beyond)
        fleet["w0"].send(signal.SIGCONT)
        stream.wait_for_more(2000)
        assert_exactly_once(service, fleet.finish(stream, revive=True))


def test_worker_stopped_with_records_on_their_way_until_they_have_timed_out(kafka: Broker, tmp_path: Path) -> None:
    """The records and their transaction time out in the client. The transaction is aborted, and the worker continues."""
    with under_load(tmp_path, kafka, seed=106) as (service, fleet, stream):
        fleet.start("w0", program=buggy("none", "sleep_while_producing", 2000))
        wait_until(lambda: stopped(fleet["w0"]), 60, "the worker to stop itself")
        time.sleep(11)
        fleet["w0"].send(signal.SIGCONT)
        fleet.wait_committed(4000, revive=True)
        assert_exactly_once(service, fleet.finish(stream, revive=True))


def test_worker_stopped_while_it_joins_leaves_the_group(kafka: Broker, tmp_path: Path) -> None:
    """Else no other member could commit until the session of this one ends."""
    with under_load(tmp_path, kafka, seed=108) as (service, fleet, stream):
        fleet.start("w0", "w1")
        fleet.wait_ready()
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        for _ in range(3):
            stream.wait_for_more(500)
            fleet.start("w2")
            fleet["w2"].wait_for(lambda: "assigned" in fleet["w2"].log, 60, "a member of the group")
            fleet.stop("w2")
            group = load_pipeline(service.file, {}).group_id
            assert len(admin.describe_consumer_groups([group])[group].result(10).members) == 2
        assert_exactly_once(service, fleet.finish(stream))


def test_workers_from_one_to_four_to_two_to_three(kafka: Broker, tmp_path: Path) -> None:
    with under_load(tmp_path, kafka, seed=104) as (service, fleet, stream):
        fleet.start("w0")
        fleet.wait_ready()
        stream.wait_for_more(1000)
        fleet.start("w1", "w2", "w3")
        fleet.wait_ready()
        stream.wait_for_more(2000)
        fleet.stop("w0", "w2")
        stream.wait_for_more(2000)
        fleet.start("w4")
        fleet.wait_ready()
        stream.wait_for_more(1000)
        assert_exactly_once(service, fleet.finish(stream))


def test_members_of_the_newer_group_protocol_come_and_go_and_die(kafka: Broker, tmp_path: Path) -> None:
    """KIP-848: the broker assigns partitions. It moves a dead member's partitions after the broker's own session timeout."""
    with under_load(tmp_path, kafka, seed=107, membership={"protocol": "consumer"}) as (service, fleet, stream):
        fleet.start("w0", "w1")
        fleet.wait_ready()
        stream.wait_for_more(1000)
        for instance_id in ("w0", "w1"):
            fleet.stop(instance_id)
            fleet.start(instance_id)
            fleet.wait_ready()
            stream.wait_for_more(500)
        fleet.wait_written()
        fleet.kill("w0")
        fleet.start("w0", "w2")
        fleet.wait_ready()
        stream.wait_for_more(1000)
        fleet.stop("w1")
        assert_exactly_once(service, fleet.finish(stream, revive=True))
