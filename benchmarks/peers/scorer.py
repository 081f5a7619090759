"""Events in, predictions out, as somebody who knows fastavro, msgspec, numpy and ONNX Runtime writes it by hand.

The Python peers share it, so that what differs between them is the framework. Nothing of Millstream is imported.
"""

from __future__ import annotations

import json
import math
import struct
import time
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import msgspec
import numpy as np
import onnxruntime

from benchmarks.peers import nested

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

    from benchmarks.peers.job import Job

    Event = Any  # a dict of the fields, or a row of nested.py
    Outputs = Mapping[str, npt.NDArray[Any]]


class Scorer:
    """Decodes events one by one, runs them through the model in one call, encodes the predictions one by one."""

    def __init__(self, job: Job) -> None:
        self.decode = _decoder(job)
        self._predict = _model(job)
        self._encode = _avro_encoder(job) if job.format == "avro" else _json_encoder(job)
        # The first run of a session allocates.
        self._predict([_blank(job)])

    def score(self, values: Sequence[bytes]) -> list[bytes]:
        """One prediction for each event, in their order. Raises whatever the decoder stumbles on."""
        ingest_time = int(time.time() * 1000)
        return self.score_decoded([self.decode(value) for value in values], ingest_time)

    def score_decoded(self, events: Sequence[Event], ingest_time: int) -> list[bytes]:
        """The same for events that are decoded already."""
        return self._encode(events, self._predict(events), ingest_time)


def _decoder(job: Job) -> Callable[[bytes | None], Event]:
    if job.format != "avro":
        return _nested_json_decoder() if job.nested else _json_decoder(kserve=job.format == "kserve")
    decode = _avro_decoder(Path(job.schema))
    return (lambda value: nested.avro_row(decode(value))) if job.nested else decode


def _nested_json_decoder() -> Callable[[bytes | None], Event]:
    read = nested.json_row()

    def decode(value: bytes | None) -> Event:
        if value is None:
            raise ValueError("no value")
        return read(value)

    return decode


def _blank(job: Job) -> Event:
    if job.nested:
        return "", 0, *([0] * spec["shape"][0] for spec in job.inputs)
    event: dict[str, Any] = {}
    for spec in job.inputs:
        fill = "" if spec["dtype"] == "string" else 0
        event |= (
            {spec["field"]: [fill] * math.prod(spec["shape"])}
            if "field" in spec
            else dict.fromkeys(spec["fields"], fill)
        )
    return event


def _json_decoder(*, kserve: bool) -> Callable[[bytes | None], Event]:
    """Tried: orjson, here and for the predictions: 0.97 of the events/s, 1.02 of the CPU, no difference beyond the noise."""
    read = msgspec.json.Decoder(dict).decode

    def decode(value: bytes | None) -> Event:
        if value is None:
            raise ValueError("no value")
        return read(value)

    def decode_kserve(value: bytes | None) -> Event:
        request = decode(value)
        return {"id": request["id"], "event_time": 0, **{entry["name"]: entry["data"] for entry in request["inputs"]}}

    return decode_kserve if kserve else decode


def _avro_decoder(schema: Path) -> Callable[[bytes | None], Event]:
    """By the schema id in the record's head. Only one schema is known: `<id>-<name>.avsc`.

    Logical types are left out: fastavro would make a datetime of each time.
    """
    definition = json.loads(schema.read_text())
    for field in definition["fields"]:
        if isinstance(field["type"], dict) and "logicalType" in field["type"]:
            field["type"] = field["type"]["type"]
    parsed = {int(schema.name.partition("-")[0]): fastavro.parse_schema(definition)}
    read, read_head = fastavro.schemaless_reader, struct.Struct(">bI").unpack

    def decode(value: bytes | None) -> Event:
        if value is None:
            raise ValueError("no value")
        body = BytesIO(value)
        magic, schema_id = read_head(body.read(5))
        if magic != 0:
            raise ValueError(f"not in the wire format: first byte {magic}")
        event: Any = read(body, parsed[schema_id], None)
        return event  # a record's schema reads a dict

    return decode


def _model(job: Job) -> Callable[[Sequence[Event]], dict[str, npt.NDArray[Any]]]:
    """Events to outputs by name."""
    options = onnxruntime.SessionOptions()
    # One thread: on small models more threads cost CPU and gain nothing, on large ones Millstream has one too.
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(job.model_file, options, providers=["CPUExecutionProvider"])
    names = {output["tensor"]: output["name"] for output in job.outputs}

    def predict(events: Sequence[Event]) -> dict[str, npt.NDArray[Any]]:
        made = nested.tensors(events) if job.nested else None
        tensors = made or {spec["tensor"]: _tensor(spec, events) for spec in job.inputs}
        return dict(zip(names.values(), session.run(list(names), tensors), strict=True))

    return predict


def _tensor(spec: Mapping[str, Any], events: Sequence[Event]) -> npt.NDArray[Any]:
    """One input [events, ...] from a list of scalar fields, or from one array field.

    Tried (us an event): for 5 scalars a list of rows 0.67, columns 0.35; for 32 floats `np.array` 1.6, `fromiter` 0.7.
    """
    if "field" in spec:
        shape = (len(events), *spec["shape"])
        numbers = chain.from_iterable(event[spec["field"]] for event in events)
        return np.fromiter(numbers, spec["dtype"], math.prod(shape)).reshape(shape)
    dtype = object if spec["dtype"] == "string" else spec["dtype"]
    return np.column_stack([np.array([event[field] for event in events], dtype) for field in spec["fields"]])


def _avro_encoder(job: Job) -> Callable[[Sequence[Event], Outputs, int], list[bytes]]:
    """Predictions in the wire format. Naming each union's branch saves fastavro a search through the union."""
    file = Path(job.prediction_schema)
    schema = fastavro.parse_schema(json.loads(file.read_text()))
    head = struct.pack(">bI", 0, int(file.name.partition("-")[0]))
    constants, (event_id, event_time) = _constants(job), _own_fields(job)

    def encode(events: Sequence[Event], outputs: Outputs, ingest_time: int) -> list[bytes]:
        prediction_time = int(time.time() * 1000)
        columns = {name: _union_values(array) for name, array in outputs.items()}
        encoded = []
        for row, event in enumerate(events):
            body = BytesIO()
            body.write(head)
            prediction = {
                "event_id": event[event_id],
                "event_time": event[event_time],
                "ingest_time": ingest_time,
                "prediction_time": prediction_time,
                "outputs": {name: column[row] for name, column in columns.items()},
                **constants,
            }
            fastavro.schemaless_writer(body, schema, prediction)
            encoded.append(body.getvalue())
        return encoded

    return encode


def _union_values(array: npt.NDArray[Any]) -> list[tuple[str, Any]]:
    """One (union branch, value) per event: a number where an event has one, else a flat list."""
    flat = array.reshape(len(array), -1)
    branch = {"float32": "float", "float64": "double", "bool": "boolean"}.get(array.dtype.name, "long")
    if flat.shape[1] == 1:
        return [(branch, value) for value in flat[:, 0].tolist()]
    return [("array", [(branch, value) for value in row]) for row in flat.tolist()]


def _json_encoder(job: Job) -> Callable[[Sequence[Event], Outputs, int], list[bytes]]:
    to_json, constants = msgspec.json.Encoder().encode, _constants(job)
    event_id, event_time = _own_fields(job)

    def encode(events: Sequence[Event], outputs: Outputs, ingest_time: int) -> list[bytes]:
        prediction_time = int(time.time() * 1000)
        columns = {name: array.reshape(len(array), -1) for name, array in outputs.items()}
        values = {name: (flat[:, 0] if flat.shape[1] == 1 else flat).tolist() for name, flat in columns.items()}
        return [
            to_json(
                {
                    "event_id": event[event_id],
                    "event_time": event[event_time],
                    **constants,
                    "ingest_time": ingest_time,
                    "prediction_time": prediction_time,
                    "outputs": {name: column[row] for name, column in values.items()},
                }
            )
            for row, event in enumerate(events)
        ]

    return encode


def _own_fields(job: Job) -> tuple[Any, Any]:
    """Where an event has its ID and its time."""
    return (0, 1) if job.nested else (job.event_id, job.event_time)


def _constants(job: Job) -> dict[str, Any]:
    return {"pipeline": job.model, "model": job.model, "version": job.version, "variant": "primary"}
