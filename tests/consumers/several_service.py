"""A pipeline of several models over JSON events such as `{"id": "e7", "x": 7.0, "who": "t1"}`."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import onnx
from confluent_kafka import Producer
from onnx import TensorProto, helper

from tests.consumers.service import Service, value_of, write_service
from tests.inference.python_models import write_python

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.broker.choice import Broker

CONFIG = "inputs: [{tensor: x, fields: [x], dtype: float32}]\noutputs: [{tensor: y}]\n"
INPUT = {"format": "json", "event_id": "id"}
SCALED = """
import numpy as np, os
class Model:
    def __init__(self, folder, device): self.folder = folder
    def predict(self, inputs):
        x = inputs["x"]
        {check}
        return {{"y": (x[:, 0] * {factor}).astype(np.float32)}}
"""


def write_scaled(models: Path, name: str, factor: float, check: str = "pass", config: str = CONFIG) -> None:
    """A Python model, version 1: `y` is `x` times a factor. `check`: a statement that may reject `x`."""
    write_python_files(models, name, SCALED.format(factor=factor, check=check), config)


def write_python_files(models: Path, name: str, code: str, config: str = CONFIG) -> None:
    """A Python model, version 1."""
    write_python(models, code, config=config, name=name)


def write_onnx(models: Path, name: str, factor: float, version: int = 1) -> None:
    """An ONNX model: `y` is `x` times a factor."""
    folder = models / name / str(version)
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(CONFIG, encoding="utf-8")
    nodes = [helper.make_node("Mul", ["x", "factor"], ["z"]), helper.make_node("Squeeze", ["z", "axes"], ["y"])]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 1])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N"])]
    constants = [
        helper.make_tensor("factor", TensorProto.FLOAT, [1], [factor]),
        helper.make_tensor("axes", TensorProto.INT64, [1], [1]),
    ]
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "model.onnx"
    )


def several_service(folder: Path, kafka: Broker, models: dict[str, Any], **sections: Any) -> Service:
    """The pipeline, over the models in `folder / "models"`. Predictions are JSON."""
    (folder / "schemas").mkdir(exist_ok=True)
    defaults: dict[str, Any] = {"input": INPUT, "output": {"format": "json"}, "schemas": {"directory": "schemas"}}
    return write_service(folder, kafka, models=models, **defaults | sections)


def send(service: Service, events: Iterable[dict[str, Any]]) -> None:
    """Write events, each into the partition of its `x`, which is also its key; the id is `e<x>`."""
    # Idempotent, so that records keep their order if a partition of the new topic has no leader yet and a batch is sent again.
    producer = Producer({"bootstrap.servers": service.bootstrap, "enable.idempotence": True})
    for event in events:
        place = int(event["x"]) % 4
        value = json.dumps({"id": f"e{event['x']:g}", **event}).encode()
        while True:
            try:
                producer.produce(service.inputs[0], value, str(place), partition=place)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(60) == 0


def predictions(service: Service) -> list[dict[str, Any]]:
    """All predictions, those of a partition in their order."""
    return [json.loads(value_of(message)) for message in service.predictions()]


def assert_in_order(service: Service) -> None:
    """For each key, the events' numbers must grow."""
    numbers: dict[object, list[float]] = defaultdict(list)
    for message in service.predictions():
        numbers[message.key()].append(float(json.loads(value_of(message))["event_id"][1:]))
    assert numbers
    for found in numbers.values():
        assert found == sorted(found)
