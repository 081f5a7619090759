"""Seeded load: events are encoded before the clock starts, and written to a topic as fast as the client can."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import onnx
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from onnx import TensorProto, helper, numpy_helper

from millstream.consumers.demo.flights import LATER_MONTHS, departures, encode_events

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

FLIGHTS_SCHEMA_ID = 1
VECTOR_SCHEMA_ID = 2
VECTOR_LENGTH = 32
SMALL = (64, 64)  # hidden layers
TIME_TYPE = {"type": "long", "logicalType": "timestamp-millis"}
VECTOR_SCHEMA = {
    "type": "record",
    "name": "VectorEvent",
    "namespace": "millstream.benchmarks",
    "doc": "An event with a vector of features: 158 bytes with the 5 bytes of the wire format, where the vector has 32.",
    "fields": [
        {"name": "id", "type": "string", "doc": "16 characters."},
        {"name": "event_time", "type": TIME_TYPE, "doc": "When it happened."},
        {"name": "x", "type": {"type": "array", "items": "float"}, "doc": "Features."},
    ],
}

FIRST_EVENT_TIME = 1_750_000_000_000  # ms; this time and the next 14 years have 6 bytes as zigzag varints


@dataclass(frozen=True, slots=True)
class Vectors:
    """A kind of vector events, and the model for them."""

    name: str  # the model's name
    schema_id: int
    length: int

    @property
    def schema_file(self) -> str:
        """The schema's file in `schemas/`."""
        return f"{self.schema_id}-{self.name}-event.avsc"


VECTOR = Vectors("vector", VECTOR_SCHEMA_ID, VECTOR_LENGTH)
WIDE = Vectors("wide", 3, 512)


@dataclass(frozen=True, slots=True)
class Load:
    """Events that are ready to be sent, in order."""

    keys: list[bytes | None]
    values: list[bytes]  # wire format: zero byte, schema ID, Avro body
    headers: list[tuple[str, str | bytes | None]] | None = None  # every event has these headers

    def part(self, first: int, last: int) -> Load:
        """The events from `first` on, up to `last`, without it."""
        return Load(self.keys[first:last], self.values[first:last], self.headers)


def flights_events(count: int, seed: int) -> Load:
    """Real departures of September to December 2013, in rounds, from a seeded position on. After 109,920 events, IDs repeat.

    Raises DemoDataError if the data set is not installed.
    """
    flights = departures(LATER_MONTHS)
    start = int(np.random.default_rng(seed).integers(flights.height))
    frame = flights[start:].vstack(flights[:start])[:count]
    values = encode_events(frame, FLIGHTS_SCHEMA_ID)
    keys = [None if tail is None else tail.encode() for tail in frame["tail_number"]]
    rounds = -(-count // len(values))
    return Load((keys * rounds)[:count], (values * rounds)[:count])


def vector_events(count: int, seed: int, vectors: Vectors = VECTOR) -> Load:
    """Events of `VECTOR_SCHEMA`: features from a normal distribution, one event per millisecond, keys of 8 bytes."""
    numbers = np.arange(count, dtype=np.int64)
    x_count = zigzag_varint(vectors.length)
    events = np.zeros(
        count,
        dtype=[
            ("head", "S5"),
            ("id_length", "u1"),
            ("id", "S16"),
            ("time", "u1", 6),
            ("x_count", "u1", len(x_count)),
            ("x", "<f4", vectors.length),
            ("x_end", "u1"),
        ],
    )
    events["head"] = struct.pack(">bI", 0, vectors.schema_id)
    events["id_length"] = 16 << 1  # Avro writes lengths and counts in zigzag
    events["id"] = np.char.add("event-", np.char.zfill(numbers.astype("U10"), 10)).astype("S16")
    zigzag = (FIRST_EVENT_TIME + numbers) << 1
    for place in range(6):
        events["time"][:, place] = (zigzag >> (7 * place) & 0x7F) | (0x80 if place < 5 else 0)
    events["x_count"] = list(x_count)
    events["x"] = np.random.default_rng(seed).standard_normal((count, vectors.length), dtype=np.float32)
    body, size = events.tobytes(), events.dtype.itemsize
    values = [body[start : start + size] for start in range(0, len(body), size)]
    return Load(keys_of(count), values)


def json_events(count: int, seed: int) -> Load:
    """The events of `vector_events` as JSON objects, with times in milliseconds and features rounded to 6 digits."""
    features = np.random.default_rng(seed).standard_normal((count, VECTOR_LENGTH), dtype=np.float32)
    encode = msgspec.json.Encoder().encode
    values = [
        encode({"id": f"event-{number:010d}", "event_time": FIRST_EVENT_TIME + number, "x": x})
        for number, x in enumerate(features.astype(np.float64).round(6).tolist())
    ]
    return Load(keys_of(count), values)


def kserve_requests(count: int, seed: int) -> Load:
    """The same events as requests of the KServe protocol, for MLServer's Kafka server, which would use the key as the ID."""
    features = np.random.default_rng(seed).standard_normal((count, VECTOR_LENGTH), dtype=np.float32)
    encode = msgspec.json.Encoder().encode
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, VECTOR_LENGTH]}
    values = [
        encode({"id": f"event-{number:010d}", "inputs": [{**tensor, "data": x}]})
        for number, x in enumerate(features.astype(np.float64).round(6).tolist())
    ]
    return Load([None] * count, values, [("mlserver-model", VECTOR.name.encode())])


def keys_of(count: int) -> list[bytes | None]:
    """Keys of 8 bytes; 9,973 of them are different."""
    return [f"{number % 9973:08d}".encode() for number in range(count)]


def zigzag_varint(number: int) -> bytes:
    """A length or count (at least 0) in Avro's encoding."""
    left, made = number << 1, bytearray()
    while left > 0x7F:
        made.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*made, left])


def write_vector_model(folder: Path, seed: int, vectors: Vectors = VECTOR, hidden: Sequence[int] = SMALL) -> None:
    """Write the schema and version 1 of the model (a perceptron with these hidden layers) for `vector_events`."""
    model = folder / "models" / vectors.name / "1"
    model.mkdir(parents=True, exist_ok=True)
    onnx.save(vector_model(seed, vectors.length, hidden), str(model / "model.onnx"))
    (model / "config.yaml").write_text(
        "description: A multilayer perceptron with random weights, for benchmarks.\n"
        "inputs:\n"
        f"  - {{tensor: x, field: x, dtype: float32, shape: [{vectors.length}]}}\n"
        "outputs:\n"
        "  - {tensor: score, name: score}\n"
    )
    (folder / "schemas").mkdir(exist_ok=True)
    (folder / "schemas" / vectors.schema_file).write_text(json.dumps(VECTOR_SCHEMA, indent=2))


def vector_model(seed: int, length: int = VECTOR_LENGTH, hidden: Sequence[int] = SMALL) -> onnx.ModelProto:
    """A model x float32 [batch, length] -> score float32 [batch, 1], with hidden layers of these sizes."""
    rng = np.random.default_rng(seed)
    nodes, weights, value = [], [], "x"
    sizes = (length, *hidden, 1)
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
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", length])],
        [helper.make_tensor_value_info("score", TensorProto.FLOAT, ["batch", 1])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model, full_check=True)
    return model


def write_load(bootstrap: str, topic: str, load: Load) -> None:
    """Write all events and wait for their acknowledgements. Raises KafkaException for the first event that failed."""
    failed: list[KafkaError] = []
    producer = Producer({**_producer_settings(bootstrap, failed), "enable.idempotence": True})
    _write(producer, topic, load)
    if failed:
        raise KafkaException(failed[0])


def write_held_load(bootstrap: str, topic: str, load: Load) -> Callable[[], None]:
    """Write all events in a transaction; returns a function that commits it. Before, readers of committed records see no event.

    Raises KafkaException.
    """
    failed: list[KafkaError] = []
    producer = Producer({**_producer_settings(bootstrap, failed), "transactional.id": f"load-{topic}"})
    producer.init_transactions(60)
    producer.begin_transaction()
    _write(producer, topic, load)
    if failed:
        raise KafkaException(failed[0])
    return producer.commit_transaction


def _producer_settings(bootstrap: str, failed: list[KafkaError]) -> dict[str, Any]:
    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    return {
        "bootstrap.servers": bootstrap,
        "linger.ms": 20,
        "batch.size": 1_000_000,
        "queue.buffering.max.messages": 1_000_000,
        "delivery.report.only.error": True,
        "on_delivery": delivered,
    }


def _write(producer: Producer, topic: str, load: Load) -> None:
    for key, value in zip(load.keys, load.values, strict=True):
        while True:
            try:
                producer.produce(topic, value, key, headers=load.headers or [])
                break
            except BufferError:  # the queue is full
                producer.poll(0.1)
    producer.flush()
