"""A pipeline over JSON events of one number, `{"id": "e0", "x": 0.0}`, with a Python model of the test's."""

from __future__ import annotations

import json
from textwrap import dedent
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from tests.consumers.service import Section, Service, value_of, write_service

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.broker.choice import Broker

_SCHEMA = {
    "type": "record",
    "name": "NumberEvent",
    "fields": [{"name": "id", "type": "string"}, {"name": "x", "type": "double"}],
}
CONFIG = "inputs: [{tensor: x, fields: [x], dtype: float64, shape: [1]}]\noutputs: [{tensor: y}]\n"
INPUT: Section = {"format": "json", "schema": "number-event", "event_id": "id"}


def python_service(folder: Path, kafka: Broker, body: str, **sections: Any) -> Service:
    """The pipeline; `body` is that of `predict(self, inputs)`, with numpy as `np` and the pipeline's folder as `FOLDER`."""
    (folder / "schemas").mkdir()
    (folder / "schemas" / "1-number-event.avsc").write_text(json.dumps(_SCHEMA), encoding="utf-8")
    version = folder / "models" / "number" / "1"
    version.mkdir(parents=True)
    (version / "config.yaml").write_text(CONFIG, encoding="utf-8")
    head = f"import os, time\nfrom pathlib import Path\nimport numpy as np\nFOLDER = Path({str(folder)!r})\n"
    head += "class Model:\n    def __init__(self, folder, device): pass\n    def predict(self, inputs):\n"
    lines = "".join(f"        {line}\n" for line in dedent(body).strip().splitlines())
    (version / "model.py").write_text(head + lines, encoding="utf-8")
    defaults: dict[str, Any] = {"input": INPUT, "model": {"name": "number"}, "output": {"format": "json"}}
    return write_service(folder, kafka, **defaults | sections)


def send(
    service: Service, numbers: Iterable[float], topic: str | None = None, *, partition: int = 0, **record: Any
) -> None:
    """Write an event of each number, in this order, into one partition; its id is `e<number>`."""
    producer = Producer({"bootstrap.servers": service.bootstrap, "acks": "all"})
    for number in numbers:
        value = json.dumps({"id": f"e{number:g}", "x": number}).encode()
        producer.produce(topic or service.inputs[0], value, partition=partition, **record)
        producer.poll(0)
    assert producer.flush(30) == 0


def answered(service: Service) -> list[str]:
    """The ids of all predictions, in their order where they are of one partition."""
    return [str(json.loads(value_of(message))["event_id"]) for message in service.predictions()]
