"""Events of varying length through a worker: one answer each, as if each had run alone."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

from millstream.consumers.cli import main as cli
from tests.broker.clients import produce
from tests.consumers.processes import Worker
from tests.consumers.service import Service, prediction_of, write_service
from tests.inference.test_varying import summing

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.broker.choice import Broker


def write(folder: Path, kafka: Broker) -> Service:
    summing(folder / "models")
    fields = [{"name": "id", "type": "string"}, {"name": "x", "type": {"type": "array", "items": "double"}}]
    schema: Any = {"type": "record", "name": "Items", "fields": fields}
    (folder / "schemas").mkdir()
    (folder / "schemas" / "1-items.avsc").write_text(json.dumps(schema), encoding="utf-8")
    events = {"format": "json", "schema": "items", "event_id": "id"}
    # A poll's worth of events of some blocks to a batch, so that batches join parts of different widths too.
    return write_service(folder, kafka, input=events, model={"name": "m"}, batch={"max_events": 50, "max_wait": "20ms"})


def test_each_event_is_answered_as_if_alone(kafka: Broker, tmp_path: Path) -> None:
    service = write(tmp_path, kafka)
    chance = random.Random(7)
    events = {f"e{number}": [float(chance.randrange(9)) for _ in range(chance.randrange(44))] for number in range(900)}
    rows = [(None, json.dumps({"id": event, "x": items}).encode()) for event, items in events.items()]
    with Worker(service.file) as worker:
        worker.wait_ready()
        for start in range(0, len(rows), 90):
            produce(kafka.bootstrap, service.inputs[0], rows[start : start + 90], partition=0)
        service.wait_written(len(rows))
        assert worker.stop() == 0
    answers = {(row := prediction_of(told))["event_id"]: row["outputs"]["y"] for told in service.predictions()}
    assert answers == {event: sum(items) for event, items in events.items() if len(items) <= 40}
    letters = {json.loads(letter.value or b"")["id"]: letter for letter in service.dead_letters()}
    assert letters.keys() == {event for event, items in events.items() if len(items) > 40}
    assert {letter.reason for letter in letters.values()} == {"unfit"}
    assert all("takes up to 40 values" in letter.error for letter in letters.values())


def test_check_says_how_far_an_event_may_reach(
    kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["check", str(write(tmp_path, kafka).file)]) == 0
    said = capsys.readouterr().out
    assert "input     items: float32 up to 40 items per event, from x" in said
    assert "input     mask: float32 up to 40 items per event, a mask" in said
