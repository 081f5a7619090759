"""Bytewax: what the source polls at once is one micro-batch; one worker.

`flat_map_batch` over the source's own batches, which are full on a backlog, because `collect` needs keyed streams: each event
passes two more steps of Python. A sink without a flush, because Bytewax's KafkaSink flushes after each batch, and Bytewax commits
nothing to Kafka: recovery is its own store's, which is off. Tried: batches of 1,000 and of 64, as quick within the noise (6 %).
"""

from __future__ import annotations

import sys
from typing import Any

from bytewax import operators as op
from bytewax.connectors.kafka import KafkaSource
from bytewax.dataflow import Dataflow
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.run import cli_main
from confluent_kafka import OFFSET_BEGINNING

from benchmarks.peers.job import Job, given_job
from benchmarks.peers.scorer import Scorer
from benchmarks.peers.writer import Prediction, Writer


class _Partition(StatelessSinkPartition[Prediction]):  # type: ignore[misc]  # its types are not here
    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def write_batch(self, items: list[Prediction]) -> None:
        self._writer.write(items)

    def close(self) -> None:
        self._writer.flush()


class Sink(DynamicSink[Prediction]):  # type: ignore[misc]
    """Predictions to the output topic."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def build(self, _step_id: str, _worker_index: int, _worker_count: int) -> _Partition:
        """See Bytewax."""
        return _Partition(Writer(self._job))


def flow(job: Job) -> Dataflow:
    """The dataflow: source -> score -> sink."""
    scorer = Scorer(job)

    def score(messages: list[Any]) -> list[Prediction]:
        predictions = scorer.score([message.value for message in messages])
        return [(message.key, prediction) for message, prediction in zip(messages, predictions, strict=True)]

    made = Dataflow("peer")
    source = KafkaSource(
        [job.bootstrap],
        [job.input],
        starting_offset=OFFSET_BEGINNING,
        batch_size=job.max_events,
        add_config={"fetch.queue.backoff.ms": "20"},  # see handwritten/consumer.py
    )
    events = op.input("events", made, source)
    op.output("predictions", op.flat_map_batch("score", events, score), Sink(job))
    return made


def main() -> int:
    cli_main(flow(given_job()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
