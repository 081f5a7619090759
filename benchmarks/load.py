"""Seeded load: encoded events, made before the clock starts, and written to a topic as fast as the client can."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import onnx
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from onnx import TensorProto, helper, numpy_helper

from consumers.demo.flights import departures, encode_events

if TYPE_CHECKING:
    from pathlib import Path

FLIGHTS_SCHEMA_ID = 1
VECTOR_SCHEMA_ID = 2
VECTOR_LENGTH = 32
VECTOR_SCHEMA = {
    "type": "record",
    "name": "VectorEvent",
    "namespace": "millstream.benchmarks",
    "doc": "An event with a vector of features: 158 bytes with the 5 bytes of the wire format.",
    "fields": [
        {"name": "id", "type": "string", "doc": "16 characters."},
        {"name": "event_time", "type": {"type": "long", "logicalType": "timestamp-millis"}, "doc": "When it happened."},
        {"name": "x", "type": {"type": "array", "items": "float"}, "doc": f"{VECTOR_LENGTH} features."},
    ],
}

_FIRST_EVENT_TIME = 1_750_000_000_000  # ms; as zigzag varints, this and the next 14 years have 6 bytes
_MONTHS = range(9, 13)  # those that the flights models were not trained on


@dataclass(frozen=True, slots=True)
class Load:
    """Events ready to be sent, in order."""

    keys: list[bytes | None]
    values: list[bytes]  # wire format: zero byte, schema id, Avro body


def flights_events(count: int, seed: int) -> Load:
    """Real departures of September to December 2013 from a seeded place on, round and round: past 109,920 ids repeat.

    Raises DemoDataError where the data set is not installed.
    """
    flights = departures(_MONTHS)
    start = int(np.random.default_rng(seed).integers(flights.height))
    frame = flights[start:].vstack(flights[:start])[:count]
    values = encode_events(frame, FLIGHTS_SCHEMA_ID)
    keys = [None if tail is None else tail.encode() for tail in frame["tail_number"]]
    rounds = -(-count // len(values))
    return Load((keys * rounds)[:count], (values * rounds)[:count])


def vector_events(count: int, seed: int) -> Load:
    """Events of `VECTOR_SCHEMA`: features from a normal distribution, one event a millisecond, keys of 8 bytes."""
    numbers = np.arange(count, dtype=np.int64)
    events = np.zeros(
        count,
        dtype=[
            ("head", "S5"),
            ("id_length", "u1"),
            ("id", "S16"),
            ("time", "u1", 6),
            ("x_count", "u1"),
            ("x", "<f4", VECTOR_LENGTH),
            ("x_end", "u1"),
        ],
    )
    events["head"] = struct.pack(">bI", 0, VECTOR_SCHEMA_ID)
    events["id_length"] = 16 << 1  # Avro writes lengths and counts in zigzag
    events["id"] = np.char.add("event-", np.char.zfill(numbers.astype("U10"), 10)).astype("S16")
    zigzag = (_FIRST_EVENT_TIME + numbers) << 1
    for place in range(6):
        events["time"][:, place] = (zigzag >> (7 * place) & 0x7F) | (0x80 if place < 5 else 0)
    events["x_count"] = VECTOR_LENGTH << 1
    events["x"] = np.random.default_rng(seed).standard_normal((count, VECTOR_LENGTH), dtype=np.float32)
    body, size = events.tobytes(), events.dtype.itemsize
    values = [body[start : start + size] for start in range(0, len(body), size)]
    return Load([f"{number % 9973:08d}".encode() for number in range(count)], values)


def write_vector_model(folder: Path, seed: int) -> None:
    """Write `schemas/2-vector-event.avsc` and model `vector` version 1 (an MLP 32-64-64-1) for `vector_events`."""
    model = folder / "models" / "vector" / "1"
    model.mkdir(parents=True, exist_ok=True)
    onnx.save(vector_model(seed), str(model / "model.onnx"))
    (model / "config.yaml").write_text(
        "description: A multilayer perceptron with random weights, for benchmarks.\n"
        "inputs:\n"
        f"  - {{tensor: x, field: x, dtype: float32, shape: [{VECTOR_LENGTH}]}}\n"
        "outputs:\n"
        "  - {tensor: score, name: score}\n"
    )
    (folder / "schemas").mkdir(exist_ok=True)
    (folder / "schemas" / f"{VECTOR_SCHEMA_ID}-vector-event.avsc").write_text(json.dumps(VECTOR_SCHEMA, indent=2))


def vector_model(seed: int) -> onnx.ModelProto:
    """x float32 [batch, 32] -> score float32 [batch, 1], by two hidden layers of 64."""
    rng = np.random.default_rng(seed)
    nodes, weights, value = [], [], "x"
    sizes = (VECTOR_LENGTH, 64, 64, 1)
    for layer, (inputs, outputs) in enumerate(pairwise(sizes), start=1):
        matrix = (rng.standard_normal((inputs, outputs)) / np.sqrt(inputs)).astype(np.float32)
        weights += [
            numpy_helper.from_array(matrix, f"w{layer}"),
            numpy_helper.from_array(np.zeros(outputs, np.float32), f"b{layer}"),
        ]
        last = layer == len(sizes) - 1
        nodes += [
            helper.make_node("Gemm", [value, f"w{layer}", f"b{layer}"], [f"h{layer}"]),
            helper.make_node("Sigmoid" if last else "Relu", [f"h{layer}"], ["score" if last else f"a{layer}"]),
        ]
        value = f"a{layer}"
    graph = helper.make_graph(
        nodes,
        "vector",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", VECTOR_LENGTH])],
        [helper.make_tensor_value_info("score", TensorProto.FLOAT, ["batch", 1])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model, full_check=True)
    return model


def write_load(bootstrap: str, topic: str, load: Load) -> None:
    """Write all events and wait for their acknowledgements. Raises KafkaException for the first that failed."""
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
            "delivery.report.only.error": True,
            "on_delivery": delivered,
        }
    )
    for key, value in zip(load.keys, load.values, strict=True):
        while True:
            try:
                producer.produce(topic, value, key)
                break
            except BufferError:  # the queue is full
                producer.poll(0.1)
    producer.flush()
    if failed:
        raise KafkaException(failed[0])
