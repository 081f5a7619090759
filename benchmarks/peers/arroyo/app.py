"""sentry-arroyo: batches by count and time, one inference a batch, one process.

The last step produces a batch through confluent-kafka and flushes and commits every 100 ms. Arroyo's own `Produce` keeps a future
for each prediction. Tried: a flush and a commit a batch: a third more CPU, fewer events a second.
"""

from __future__ import annotations

import signal
import sys
import time
from typing import TYPE_CHECKING, Any

from arroyo.backends.kafka import KafkaConsumer, KafkaPayload
from arroyo.backends.kafka.configuration import build_kafka_consumer_configuration
from arroyo.commit import IMMEDIATE
from arroyo.processing import StreamProcessor
from arroyo.processing.strategies import BatchStep
from arroyo.processing.strategies.abstract import ProcessingStrategy, ProcessingStrategyFactory
from arroyo.types import Topic

from benchmarks.peers.job import Job, given_job
from benchmarks.peers.scorer import Scorer
from benchmarks.peers.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Mapping

CHECKPOINT_EVERY = 0.1  # seconds


class Score(ProcessingStrategy[Any]):  # type: ignore[misc]  # its types are not here
    """Scores and produces batches; commits what is acknowledged."""

    def __init__(self, job: Job, commit: Any) -> None:
        self._commit = commit
        self._scorer = Scorer(job)
        self._written: dict[Any, int] = {}  # partition -> offset of the next event
        self._checkpointed = time.monotonic()
        self._writer = Writer(job)

    def submit(self, message: Any) -> None:
        """See arroyo."""
        payloads = [value.payload for value in message.payload]
        predictions = self._scorer.score([payload.value for payload in payloads])
        self._writer.write(zip((payload.key for payload in payloads), predictions, strict=True))
        self._written.update(message.committable)

    def poll(self) -> None:
        """See arroyo."""
        if self._written and time.monotonic() - self._checkpointed >= CHECKPOINT_EVERY:
            self.join()

    def join(self, timeout: float | None = None) -> None:  # noqa: ARG002
        """See arroyo."""
        self._writer.flush()
        self._commit(self._written)
        self._written = {}
        self._checkpointed = time.monotonic()

    def close(self) -> None:
        """See arroyo."""

    def terminate(self) -> None:
        """See arroyo."""


class Factory(ProcessingStrategyFactory[KafkaPayload]):  # type: ignore[misc]
    """BatchStep -> Score."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def create_with_partitions(self, commit: Any, _partitions: Mapping[Any, int]) -> ProcessingStrategy[KafkaPayload]:
        """See arroyo."""
        return BatchStep(self._job.max_events, self._job.max_wait_ms / 1000, Score(self._job, commit))


def main() -> int:
    job = given_job()
    settings = build_kafka_consumer_configuration(
        # Arroyo fetches 10,000 events ahead, and at that limit the client would rest for a second: twice the events/s.
        {"bootstrap.servers": job.bootstrap, "fetch.queue.backoff.ms": 20},
        job.group,
        auto_offset_reset="earliest",
    )
    processor = StreamProcessor(KafkaConsumer(settings), Topic(job.input), Factory(job), IMMEDIATE)
    signal.signal(signal.SIGTERM, lambda *_: processor.signal_shutdown())
    processor.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
