"""A feature store that dies and hangs under load while workers are killed: each event has one result, with its own features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millstream.consumers.observability import metrics as m
from tests.faults.load import Event, Stream, numbers
from tests.faults.service import Fleet, assert_exactly_once
from tests.feature_store.scene import customer_service, store_section

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.servers.redis_server import RedisServer
    from tests.broker.choice import Broker

pytestmark = pytest.mark.durable
RATE = 500  # events a second
KNOWN = 150_000  # events whose features are in the store: more than any run of this test sends
CONFIG = """\
inputs:
  - {tensor: x, dtype: float64, fields: [x, {from: customer, field: number}]}
  - {tensor: id, dtype: string, fields: [id]}
outputs: [{tensor: y}]
"""
BODY = """
numbers = [int(each[6:]) for each in inputs["id"][:, 0]]
if (inputs["x"][:, 1] != numbers).any():
    raise ValueError("the features of another event")
return {"y": inputs["x"].sum(axis=1)}
"""


def events(seed: int) -> Iterator[Event]:
    return numbers(seed, None)


def fill(server: RedisServer) -> None:
    """Give each event's customer its number, so that it lasts over a restart of the server."""
    for start in range(0, KNOWN, 10_000):
        server.put({f"customer:event-{n:010d}": {"number": n} for n in range(start, start + 10_000)})
    server.client().save()


@pytest.mark.full
def test_store_dies_and_hangs_while_workers_are_killed(
    kafka: Broker, tmp_path: Path, redis_server: RedisServer
) -> None:
    fill(redis_server)
    sections: dict[str, Any] = {
        "store": store_section(redis_server, timeout="1s"),
        "delivery": "exactly_once",
        "output": {},
        "batch": {"max_events": 64},
        # The test kills workers; no event does.
        "limits": {"crash_attempts": 1000},
    }
    service = customer_service(tmp_path, kafka, redis_server, body=BODY, config=CONFIG, **sections)
    with Stream(service.bootstrap, service.inputs[0], events(2801), RATE) as stream, Fleet(service) as fleet:
        fleet.start("w0", "w1")
        fleet.wait_ready()
        fleet.wait_committed(1000)
        redis_server.kill()
        wait_for_outage(fleet, "w0", "w1")
        fleet.kill("w1")
        fleet.start("w1")
        stream.wait_for_more(500)
        redis_server.start()
        fleet.wait_committed(2000)
        fleet.kill("w0")
        fleet.start("w0")
        fleet.wait_ready()
        redis_server.freeze()
        wait_for_outage(fleet, "w0", "w1")
        fleet.kill("w0")
        redis_server.thaw()
        fleet.start("w0")
        fleet.wait_committed(1000)
        sent = fleet.finish(stream)
    assert len(sent) < KNOWN
    assert_exactly_once(service, sent)
    assert not service.dead_letters()


def wait_for_outage(fleet: Fleet, *instance_ids: str) -> None:
    """Wait until these workers wait for the store."""
    for instance_id in instance_ids:
        worker = fleet[instance_id]
        worker.wait_for(
            lambda worker=worker: worker.get("/ready")[0] == 503,  # type: ignore[misc]
            60,
            "waiting for the store",
        )
        assert worker.metrics()[f"{m.RETRIES.name}{{what=features}}"] > 0
