"""A model of the user's own code in a worker: what it raises decides what becomes of the events, and of nothing else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from millstream.consumers.cli import main as cli
from millstream.consumers.observability import metrics as m
from tests.broker.choice import Broker
from tests.broker.clients import produce
from tests.consumers.processes import Worker
from tests.consumers.service import Service, prediction_of, write_service
from tests.inference.python_models import write_python

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

CONFIG = "inputs: [{tensor: x, fields: [place], dtype: int64}]\noutputs: [{tensor: y, name: root}]\n"
CODE = """
import numpy as np

from .roots import root

class Model:
    def __init__(self, folder, device):
        self.folder = folder

    def predict(self, inputs):
        x = inputs["x"][:, 0]
        if (self.folder / "away").exists():
            raise ConnectionError("the feature store is away")
        if len(x) > 10:
            raise MemoryError("no more than 10")
        if (x == 17).any():
            np.ones(2**56)
        if (x == 13).any():
            raise ValueError("13 brings bad luck")
        return {"y": root(x)}
"""
ROOTS = """
import numpy as np

def root(x):
    with np.errstate(invalid="ignore"):
        return np.sqrt(x.astype(float))
"""


def write(folder: Path, kafka: Broker, *, code: str = CODE, with_topics: bool = True) -> Service:
    write_python(folder / "models", code, config=CONFIG, roots=ROOTS)
    fields = [{"name": "id", "type": "string"}, {"name": "place", "type": "long"}]
    schema: Any = {"type": "record", "name": "Place", "fields": fields}
    (folder / "schemas").mkdir()
    (folder / "schemas" / "1-place.avsc").write_text(json.dumps(schema), encoding="utf-8")
    events = {"format": "json", "schema": "place", "event_id": "id"}
    return write_service(folder, kafka, input=events, model={"name": "m"}, with_topics=with_topics)


def test_outage_makes_lag_and_bad_events_are_refused_one_by_one(kafka: Broker, tmp_path: Path) -> None:
    service = write(tmp_path, kafka)
    away = tmp_path / "models" / "m" / "1" / "away"
    places = {f"e{number}": number % 30 - 1 for number in range(600)}
    rows = [(None, json.dumps({"id": event, "place": place}).encode()) for event, place in places.items()]
    with Worker(service.file) as worker:
        worker.wait_ready()
        away.touch()
        produce(kafka.bootstrap, service.inputs[0], rows)
        worker.wait_for(lambda: worker.get("/ready")[0] == 503, 30, "not ready")
        worker.wait_for(lambda: worker.metrics().get(f"{m.RETRIES.name}{{what=executor}}", 0) >= 2, 30, "trying again")
        assert worker.get("/live")[0] == 200
        assert service.predictions() == []
        assert service.dead_letters() == []
        away.unlink()
        service.wait_written(len(rows))
        service.wait_committed()
        worker.wait_ready()
        assert worker.stop() == 0
    answers = {(row := prediction_of(told))["event_id"]: row["outputs"]["root"] for told in service.predictions()}
    assert answers == {event: place**0.5 for event, place in places.items() if place not in {-1, 13, 17}}
    letters = service.dead_letters()
    assert sorted((letter.reason, places[json.loads(letter.value or b"")["id"]]) for letter in letters) == sorted(
        [("model_rejected", 13)] * 20 + [("model_rejected", 17)] * 20 + [("nan_output", -1)] * 20
    )
    assert {letter.error.rsplit("/", 1)[-1].partition(" for an array")[0] for letter in letters} == {
        "model.py:19: ValueError: 13 brings bad luck",
        "model.py:17: MemoryError: Unable to allocate 512. PiB",
        "output `root` is nan",
    }


def test_worker_waits_also_at_its_start(kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    service = write(tmp_path, kafka)
    away = tmp_path / "models" / "m" / "1" / "away"
    away.touch()
    assert cli.run(["check", str(service.file)]) == 1
    assert "the feature store is away. A worker waits until that works, and then begins." in capsys.readouterr().err
    produce(kafka.bootstrap, service.inputs[0], [(None, b'{"id": "a", "place": 4}')])
    with Worker(service.file) as worker:
        worker.wait_for(lambda: worker.metrics().get(f"{m.RETRIES.name}{{what=executor}}", 0) >= 2, 30, "trying again")
        assert worker.get("/live")[0] == 200
        away.unlink()
        service.wait_committed()
        assert worker.stop() == 0
    (told,) = map(prediction_of, service.predictions())
    assert told["outputs"] == {"root": 2.0}


def test_check_tells_where_a_model_fails_to_load(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nowhere = Broker("127.0.0.1:1", durable=False, kind="mock")
    service = write(tmp_path, nowhere, code="import roots\n", with_topics=False)
    assert cli.run(["check", str(service.file), "--offline"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "models/m/1/model.py:1: the model can't be loaded: ModuleNotFoundError" in said
    assert "write `from . import roots`" in said
