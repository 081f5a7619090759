"""A producer that means harm, while workers are killed: each good event is predicted, each bad one is a dead letter."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from millstream.consumers.observability import metrics as m
from tests.consumers.service import id_of
from tests.faults.hostile import PREDICTED, hostile_service, hostile_stream
from tests.faults.load import Stream
from tests.faults.service import RATE, Fleet, assert_exactly_once, verdict_of

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.schemas.dead_letters import DeadLetter
    from tests.broker.choice import Broker
    from tests.consumers.service import Service
    from tests.faults.checker import Sent
    from tests.registry.apicurio import Apicurio

pytestmark = pytest.mark.durable
REFUSALS = {"undecodable", "unfit", "schema_incompatible", "unknown_schema"}
"""The results that random bytes may have."""
UNASKED = "the look-up budget is used up"
"""In a dead letter: the registry was not asked for the schema, because it took long for those before."""


@pytest.mark.parametrize("delivery", [pytest.param("at_least_once", marks=pytest.mark.full), "exactly_once"])
def test_hostile_records_of_every_kind_while_workers_are_killed(
    kafka: Broker, registry: Apicurio, tmp_path: Path, full: bool, delivery: str
) -> None:
    """No worker ends because of a record: `Fleet` checks that."""
    client = SchemaRegistryClient({"url": registry.url})
    # The test kills workers; no event does.
    service, ids = hostile_service(
        tmp_path, kafka, client, registry.url, delivery=delivery, limits={"crash_attempts": 1000}
    )
    topic = service.inputs[0]
    events = hostile_stream(1701, ids, int(time.time() * 1000), share=0.05)
    with Stream(kafka.bootstrap, topic, events, RATE // 2) as stream, Fleet(service) as fleet:
        fleet.start("w0", "w1")
        for _ in range(5 if full else 1):
            fleet.wait_committed(2000)
            fleet.kill("w0", "w1")
            fleet.start("w0", "w1")
        fleet.wait_committed(3000)
        assert all(fleet[instance_id].metrics().get(m.INTERNAL_ERRORS.name) == 0 for instance_id in ("w0", "w1"))
        sent = fleet.finish(stream)
    # The test identifies events by their offsets, because they may contain anything.
    placed = [replace(one, id=f"{topic}-{one.partition}-{one.offset}") for one in sent]
    if delivery == "exactly_once":
        assert_exactly_once(service, placed)
    else:
        verdict = verdict_of(service, placed)
        assert (verdict.lost, verdict.reordered, verdict.unknown, verdict.skipped) == ((), (), (), ())
    _assert_fates(service, sent, topic)


def _assert_fates(service: Service, sent: list[Sent], topic: str) -> None:
    """Assert that each event has the result that it must have."""
    fates = {f"{topic}-{one.partition}-{one.offset}": one.id.partition(":")[0] for one in sent}
    found = {id_of(message): PREDICTED for message in service.predictions()}
    found |= {f"{topic}-{letter.partition}-{letter.offset}": _result(letter) for letter in service.dead_letters()}
    wrong = Counter((fate, found.get(place)) for place, fate in fates.items() if not _is(fate, found.get(place)))
    assert not wrong
    assert {fate for fate in fates.values() if fate != "refused"} <= set(found.values())


def _result(letter: DeadLetter) -> str:
    if UNASKED not in letter.error:
        return letter.reason
    assert letter.reason == "unknown_schema"
    return UNASKED


def _is(fate: str, found: str | None) -> bool:
    if found == UNASKED:
        return fate in {"unknown_schema", "schema_incompatible"}
    return found in REFUSALS if fate == "refused" else found == fate
