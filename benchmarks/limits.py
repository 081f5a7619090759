"""Raw limits: the CPU time of each library alone. `python -m benchmarks.limits JOB EVENTS` prints a JSON line.

The threads of the Kafka client count, too. So the sum is the CPU time of a program that does all three jobs and nothing else.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from benchmarks.peers.job import Job
from benchmarks.peers.scorer import Scorer

if TYPE_CHECKING:
    from collections.abc import Callable

POLL = 1000  # records per call
INFERENCE_SECONDS = 10.0  # most seconds of the inference job


def main() -> int:
    job, events = Job(**json.loads(Path(sys.argv[1]).read_text())), int(sys.argv[2])
    values = _some_values(job)
    predictions = Scorer(job).score(values)
    limits = {
        "consume_us": _cpu_us(lambda: _consume(job, events)),
        "produce_us": _cpu_us(lambda: _produce(job, predictions, events)),
        **_infer(job, events),
    }
    print(json.dumps(limits))
    return 0


def _cpu_us(run: Callable[[], int]) -> float:
    """CPU microseconds per event, of all threads."""
    start = time.process_time()
    events = run()
    return round((time.process_time() - start) / events * 1e6, 3)


def _reader(job: Job) -> Consumer:
    consumer = Consumer({"bootstrap.servers": job.bootstrap, "group.id": job.group, "enable.auto.commit": False})
    partitions = consumer.list_topics(job.input).topics[job.input].partitions
    consumer.assign([TopicPartition(job.input, number, OFFSET_BEGINNING) for number in partitions])
    return consumer


def _some_values(job: Job) -> list[bytes]:
    consumer = _reader(job)
    values: list[bytes] = []
    while len(values) < job.max_events:
        values += [message.value() or b"" for message in consumer.consume(job.max_events - len(values), 1.0)]
    consumer.close()
    return values


def _consume(job: Job, events: int) -> int:
    consumer = _reader(job)
    left = events
    while left > 0:
        left -= len(consumer.consume(min(POLL, left), 1.0))
    consumer.close()
    return events


def _produce(job: Job, predictions: list[bytes], events: int) -> int:
    settings = {"enable.idempotence": True, "linger.ms": 5, "batch.size": 1_000_000, "delivery.report.only.error": True}
    producer = Producer({"bootstrap.servers": job.bootstrap, **settings})
    for number in range(events):
        while True:
            try:
                producer.produce(job.output, predictions[number % len(predictions)], b"12345678")
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()
    return events


def _infer(job: Job, events: int) -> dict[str, Any]:
    """Run full micro-batches of ones in one thread; returns CPU time per event, and events/s."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(job.model_file, options, providers=["CPUExecutionProvider"])
    inputs = {
        spec["tensor"]: np.full(
            (job.max_events, *spec["shape"]),
            "EWR" if spec["dtype"] == "string" else 1,
            object if spec["dtype"] == "string" else spec["dtype"],
        )
        for spec in job.inputs
    }
    names = [output["tensor"] for output in job.outputs]
    session.run(names, inputs)
    start, cpu, done = time.monotonic(), time.process_time(), 0
    while done < events and time.monotonic() - start < INFERENCE_SECONDS:
        session.run(names, inputs)
        done += job.max_events
    seconds, used = time.monotonic() - start, time.process_time() - cpu
    return {"infer_us": round(used / done * 1e6, 3), "infer_rate": round(done / seconds, 1)}


if __name__ == "__main__":
    sys.exit(main())
