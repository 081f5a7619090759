"""Bytewax: what the source polls at once is one micro-batch; one worker.

`flat_map_batch` over the source's own batches, which are full on a backlog, because `collect` needs keyed streams: each event
passes two more steps of Python. A sink without a flush, because Bytewax's KafkaSink flushes after each batch, and Bytewax commits
nothing to Kafka: recovery is its own store's, which is off.
"""

from __future__ import annotations

import sys
from typing import Any

from bytewax import operators as op
from bytewax.connectors.kafka import KafkaSource
from bytewax.dataflow import Dataflow
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.run import cli_main
from confluent_kafka import OFFSET_BEGINNING, Producer

from benchmarks.peers.job import Job, given_job
from benchmarks.peers.scorer import Scorer

Prediction = tuple[bytes | None, bytes]  # key, value


class _Partition(StatelessSinkPartition[Prediction]):  # type: ignore[misc]  # its types are not here
    def __init__(self, producer: Producer, topic: str) -> None:
        self._producer = producer
        self._topic = topic

    def write_batch(self, items: list[Prediction]) -> None:
        for key, value in items:
            while True:
                try:
                    self._producer.produce(self._topic, value, key)
                    break
                except BufferError:
                    self._producer.poll(0.1)
        self._producer.poll(0)

    def close(self) -> None:
        self._producer.flush()


class Sink(DynamicSink[Prediction]):  # type: ignore[misc]
    """Predictions to the output topic."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def build(self, _step_id: str, _worker_index: int, _worker_count: int) -> _Partition:
        """See Bytewax."""
        settings = {
            "bootstrap.servers": self._job.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "delivery.report.only.error": True,
        }
        return _Partition(Producer(settings), self._job.output)


def flow(job: Job) -> Dataflow:
    """The dataflow: source -> score -> sink."""
    scorer = Scorer(job)

    def score(messages: list[Any]) -> list[Prediction]:
        predictions = scorer.score([message.value for message in messages])
        return [(message.key, prediction) for message, prediction in zip(messages, predictions, strict=True)]

    made = Dataflow("peer")
    source = KafkaSource([job.bootstrap], [job.input], starting_offset=OFFSET_BEGINNING, batch_size=job.max_events)
    events = op.input("events", made, source)
    op.output("predictions", op.flat_map_batch("score", events, score), Sink(job))
    return made


def main() -> int:
    cli_main(flow(given_job()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
