"""A topic with several kinds of events, of which one is for the pipeline: nothing is written for the others."""

from __future__ import annotations

import json
from shutil import rmtree
from typing import TYPE_CHECKING, Any

import pytest

from tests.broker.clients import produce
from tests.consumers.processes import Worker
from tests.consumers.python_service import python_service
from tests.consumers.service import value_of
from tests.consumers.worker.test_worker_shadow import comparisons, shadowed

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker
    from tests.consumers.service import Service

INPUT = {"format": "json", "event_id": "id", "event_time": "at", "filter": "kind == order"}
OTHERS: list[dict[str, Any]] = [
    {"kind": "view"},
    {"kind": "view", "id": None, "at": "yesterday", "x": {"of": []}},
    {"kind": "refund", "id": "e1", "at": 5, "x": 1.0},
    {},
]
EVENTS = 400


def send_mixed(service: Service) -> None:
    """An order, and three of four times an event of another kind after it. Each partition gets both."""
    for partition in range(4):
        rows = []
        for number in range(partition, EVENTS, 4):
            rows.append({"kind": "order", "id": f"e{number}", "at": 5, "x": float(number)})
            if number % 16 > 3:
                rows.append(OTHERS[number % len(OTHERS)])
        rows += OTHERS  # at the end: offsets behind the last event are committed, too
        produce(
            service.bootstrap,
            service.inputs[0],
            [(None, json.dumps(row).encode()) for row in rows],
            partition=partition,
        )


SENT_OTHERS = EVENTS * 3 // 4 + 4 * len(OTHERS)


@pytest.mark.broker
@pytest.mark.parametrize("delivery", ["at_least_once", pytest.param("exactly_once", marks=pytest.mark.durable)])
def test_events_of_other_kinds_leave_nothing_but_a_count(kafka: Broker, tmp_path: Path, delivery: str) -> None:
    service = python_service(tmp_path, kafka, 'return {"y": -inputs["x"]}', input=INPUT, delivery=delivery)
    rmtree(tmp_path / "schemas")
    send_mixed(service)
    produce(kafka.bootstrap, service.inputs[0], [(None, b'{"kind": {}, "id": "x"}')], partition=0)
    with Worker(service.file, "--until-idle") as worker:
        assert worker.wait() == 0, worker.log
    rows = [json.loads(value_of(message)) for message in service.predictions()]
    assert sorted((row["event_id"], row["outputs"]["y"]) for row in rows) == sorted(
        (f"e{number}", -float(number)) for number in range(EVENTS)
    )
    [letter] = service.dead_letters()
    assert letter.error == "kind: expected text, a number, or true or false, found an object"
    assert service.committed() == service.input_ends()
    assert (
        f"{EVENTS:,} predicted, 1 dead letter (1 undecodable), {SENT_OTHERS} skipped ({SENT_OTHERS} filtered)"
        in worker.log
    )


@pytest.mark.broker
@pytest.mark.parametrize("dedicated", [False, True])
def test_shadows_see_only_the_events_that_pass(kafka: Broker, tmp_path: Path, dedicated: bool) -> None:
    service = shadowed(tmp_path, kafka, 'return {"y": 2 * inputs["x"]}', shadow={"dedicated": dedicated}, input=INPUT)
    rmtree(tmp_path / "schemas")
    send_mixed(service)
    with Worker(service.file, "--until-idle", *(["--role", "shadow"] if dedicated else [])) as worker:
        assert worker.wait() == 0, worker.log
    found = comparisons(service)
    assert sorted(found.ids) == sorted(f"e{number}" for number in range(EVENTS))
    assert f"{SENT_OTHERS} skipped ({SENT_OTHERS} filtered)" in worker.log
