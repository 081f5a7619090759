"""The peer of the benchmarks: the consumer an engineer writes by hand in an hour, at least once.

confluent-kafka, fastavro and ONNX Runtime, one process, one thread of Python; nothing of Millstream is imported.
It is tuned as somebody who knows these libraries would tune it. What was tried is beside each choice.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import signal
import struct
import sys
import time
from dataclasses import asdict, dataclass
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import numpy as np
import onnxruntime
import yaml
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

    Event = dict[str, Any]

_PREDICTION_SCHEMA = Path(__file__).parents[1] / "schemas" / "1000001-prediction-v1.avsc"
_CHECKPOINT_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class Result:
    """What one run took."""

    events: int
    dead: int
    cpu_seconds: float  # of the whole process, from joining the group to the last acknowledgement
    wall_seconds: float  # from the first event to the last acknowledgement
    peak_rss_mb: float


def main() -> int:
    arguments = _arguments()
    peer = Handwritten(arguments)
    signal.signal(signal.SIGTERM, lambda *_: peer.stop())
    result = peer.run()
    print(json.dumps(asdict(result)))
    return 0


class Handwritten:
    """consume -> decode -> infer -> encode -> produce -> (every 100 ms) flush and commit."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._in: str = arguments.input
        self._out: str = arguments.out
        self._dead: str = arguments.dead
        self._max_events: int = arguments.max_events
        self._max_wait_s: float = arguments.max_wait_ms / 1000
        self._until_idle_s: float = arguments.until_idle
        self._decode = _decoder(arguments.schema)
        self._predict = _model(arguments.model_dir)
        self._encode = _encoder(arguments)
        self._consumer = Consumer(_consumer_settings(arguments.bootstrap, arguments.group))
        self._producer = Producer({**_producer_settings(arguments.bootstrap), "on_delivery": self._delivered})
        self._failed: KafkaError | None = None
        self._unflushed = False
        self._stopping = False
        self._events = self._dead_count = 0
        self._last_ack = self._last_ack_cpu = 0.0

    def stop(self) -> None:
        """End after the batch in hand."""
        self._stopping = True

    def run(self) -> Result:
        """Until stopped, or until no event came for `--until-idle` seconds after the first one."""
        start_cpu = time.process_time()
        first = last = 0.0
        self._consumer.subscribe([self._in])
        checkpoint_at = time.monotonic() + _CHECKPOINT_EVERY_S
        while not self._stopping:
            # One call both batches by count and by time, and leaves the interpreter lock. Tried on a backlog:
            # poll() per message, and consume(4096) cut into batches: no difference beyond the noise.
            messages = self._consumer.consume(self._max_events, self._max_wait_s)
            now = time.monotonic()
            if messages:
                first, last = first or now, now
                self._process(messages)
            elif first and now - last > self._until_idle_s:
                break
            if now >= checkpoint_at:
                self._checkpoint()
                checkpoint_at = now + _CHECKPOINT_EVERY_S
        self._checkpoint()
        self._consumer.close()
        return Result(
            events=self._events,
            dead=self._dead_count,
            cpu_seconds=round(self._last_ack_cpu - start_cpu, 3),
            wall_seconds=round(self._last_ack - first, 3),
            peak_rss_mb=peak_rss_mb(),
        )

    def _process(self, messages: Sequence[Message]) -> None:
        ingest_time = int(time.time() * 1000)
        events: list[Event] = []
        keys: list[bytes | None] = []
        for message in messages:
            error = message.error()
            if error is not None:
                raise KafkaException(error)
            value, key = message.value(), message.key()
            try:
                events.append(self._decode(value))
                keys.append(key)
            except Exception as problem:  # fastavro raises whatever it stumbles on: the record is bad
                self._dead_letter(key, value, problem)
        self._events += len(messages)
        if events:
            outputs = self._predict(events)
            for key, prediction in zip(keys, self._encode(events, outputs, ingest_time), strict=True):
                self._produce(self._out, prediction, key)
        self._unflushed = True
        self._producer.poll(0)

    def _produce(self, topic: str, value: bytes | None, key: bytes | None, error: str = "") -> None:
        while True:
            try:
                self._producer.produce(topic, value, key, headers=[("error", error)] if error else None)
                return
            except BufferError:
                self._producer.poll(0.1)

    def _dead_letter(self, key: bytes | None, value: bytes | None, problem: Exception) -> None:
        self._dead_count += 1
        self._produce(self._dead, value, key, f"{type(problem).__name__}: {problem}")

    def _checkpoint(self) -> None:
        """Wait until all predictions are acknowledged, then commit what was read.

        Tried: after each batch, and every second: no difference in CPU beyond the noise. What is committed is what
        was read, so nothing is committed in the middle of a batch, also not when partitions are revoked.
        """
        if not self._unflushed:
            return
        self._producer.flush()
        if self._failed is not None:
            raise KafkaException(self._failed)
        self._consumer.commit(asynchronous=True)
        self._unflushed = False
        self._last_ack, self._last_ack_cpu = time.monotonic(), time.process_time()

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failed = error


def _consumer_settings(bootstrap: str, group: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "partition.assignment.strategy": "cooperative-sticky",
    }


def _producer_settings(bootstrap: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "enable.idempotence": True,
        # As long as the batch's window. Tried: 20 ms takes about 15 % less CPU and makes each prediction wait for it.
        "linger.ms": 5,
        "batch.size": 1_000_000,
        # A callback for each prediction is a call into Python that says nothing new: flush() counts them.
        "delivery.report.only.error": True,
    }


def _decoder(schema: Path) -> Callable[[bytes | None], Event]:
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
        return event  # type: ignore[no-any-return]  # a record's schema reads a dict

    return decode


def _model(folder: Path) -> Callable[[Sequence[Event]], dict[str, npt.NDArray[Any]]]:
    """`<name>/<version>/` with model.onnx and config.yaml -> events to outputs by name."""
    config = yaml.safe_load((folder / "config.yaml").read_text())
    options = onnxruntime.SessionOptions()
    # One thread: on models of this size more threads cost CPU and gain nothing.
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])
    names = {output["tensor"]: output["name"] for output in config["outputs"]}

    def predict(events: Sequence[Event]) -> dict[str, npt.NDArray[Any]]:
        tensors = {spec["tensor"]: _tensor(spec, events) for spec in config["inputs"]}
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


def _encoder(
    arguments: argparse.Namespace,
) -> Callable[[Sequence[Event], Mapping[str, npt.NDArray[Any]], int], list[bytes]]:
    """Predictions in the wire format. Naming each union's branch saves fastavro a search through the union."""
    definition = json.loads(arguments.prediction_schema.read_text())
    schema = fastavro.parse_schema(definition)
    head = struct.pack(">bI", 0, int(arguments.prediction_schema.name.partition("-")[0]))
    id_field, time_field = arguments.event_id, arguments.event_time
    version, model = arguments.model_dir.name, arguments.model_dir.parent.name
    constants = {"pipeline": model, "model": model, "version": int(version), "variant": "primary"}

    def encode(events: Sequence[Event], outputs: Mapping[str, npt.NDArray[Any]], ingest_time: int) -> list[bytes]:
        prediction_time = int(time.time() * 1000)
        columns = {name: _values(array) for name, array in outputs.items()}
        encoded = []
        for row, event in enumerate(events):
            body = BytesIO()
            body.write(head)
            prediction = {
                "event_id": event[id_field],
                "event_time": event[time_field],
                "ingest_time": ingest_time,
                "prediction_time": prediction_time,
                "outputs": {name: column[row] for name, column in columns.items()},
                **constants,
            }
            fastavro.schemaless_writer(body, schema, prediction)
            encoded.append(body.getvalue())
        return encoded

    return encode


def _values(array: npt.NDArray[Any]) -> list[tuple[str, Any]]:
    """One (union branch, value) per event: a number where an event has one, else a flat list."""
    flat = array.reshape(len(array), -1)
    branch = {"float32": "float", "float64": "double", "bool": "boolean"}.get(array.dtype.name, "long")
    if flat.shape[1] == 1:
        return [(branch, value) for value in flat[:, 0].tolist()]
    return [("array", [(branch, value) for value in row]) for row in flat.tolist()]


def peak_rss_mb() -> float:
    """The most memory this process has had, MiB."""
    # getrusage's ru_maxrss would be that of the process which started this one, where that is larger.
    status = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return round(int(status[1]) / 1024, 1) if status else 0.0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.handwritten", description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--in", dest="input", required=True, help="topic of events")
    parser.add_argument("--out", required=True, help="topic of predictions")
    parser.add_argument("--dead", required=True, help="topic of events that can't be decoded")
    parser.add_argument("--group", required=True)
    parser.add_argument("--schema", type=Path, required=True, help="<id>-<name>.avsc of the events")
    parser.add_argument(
        "--model-dir", type=Path, required=True, help="<name>/<version> with model.onnx and config.yaml"
    )
    parser.add_argument("--event-id", default="id", help="field (default: %(default)s)")
    parser.add_argument("--event-time", default="event_time", help="field (default: %(default)s)")
    parser.add_argument("--max-events", type=int, default=256)
    parser.add_argument("--max-wait-ms", type=float, default=5)
    parser.add_argument("--until-idle", type=float, default=3, help="seconds without events after which it ends")
    parser.add_argument("--prediction-schema", type=Path, default=_PREDICTION_SCHEMA)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
