"""Bad events among the good while workers are killed: each has its one prediction or its one dead letter."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.consumers.service import write_service
from tests.faults.load import Stream, places
from tests.faults.service import RATE, Crew, assert_exactly_once
from tests.inference.models import looking_up

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker

pytestmark = pytest.mark.durable
FIELDS = [{"name": "id", "type": "string"}, {"name": "place", "type": "long"}]


def test_poison_and_undecodable_events_while_workers_are_killed(kafka: Broker, tmp_path: Path, full: bool) -> None:
    looking_up(tmp_path / "models")
    (tmp_path / "schemas").mkdir()
    schema = {"type": "record", "name": "Place", "fields": FIELDS}
    (tmp_path / "schemas" / "1-place.avsc").write_text(json.dumps(schema), encoding="utf-8")
    service = write_service(
        tmp_path,
        kafka,
        delivery="exactly_once",  # type: ignore[arg-type]
        input={"format": "json", "schema": "place", "event_id": "id"},
        model={"name": "m"},
    )
    with Stream(kafka.bootstrap, service.inputs[0], places(seed=701), RATE // 3) as stream, Crew(service) as crew:
        crew.start("w0", "w1")
        for _ in range(5 if full else 1):
            crew.wait_written()
            crew.kill("w0", "w1")
            crew.start("w0", "w1")
        sent = crew.finish(stream)
    assert_exactly_once(service, sent)
    reasons = {letter.reason for letter in service.dead_letters()}
    assert reasons == {"undecodable", "model_rejected"}
