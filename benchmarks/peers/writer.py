"""Predictions to the output topic through confluent-kafka, for the frameworks whose own producers are slower than that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, Message, Producer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.peers.job import Job

Prediction = tuple[bytes | None, bytes]  # key, value


class Writer:
    """An idempotent producer that tells failures at its flush."""

    def __init__(self, job: Job) -> None:
        self._topic = job.output
        self._failed: KafkaError | None = None
        self._producer = Producer(
            {
                "bootstrap.servers": job.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "batch.size": 1_000_000,
                "delivery.report.only.error": True,
                "on_delivery": self._delivered,
            }
        )

    def write(self, predictions: Iterable[Prediction]) -> None:
        """Hand a batch to the client, waiting for room where it has none."""
        for key, value in predictions:
            while True:
                try:
                    self._producer.produce(self._topic, value, key)
                    break
                except BufferError:
                    self._producer.poll(0.1)
        self._producer.poll(0)

    def flush(self) -> None:
        """Wait until all is acknowledged.

        Raises:
            KafkaException: something could not be written.
        """
        self._producer.flush()
        if self._failed is not None:
            raise KafkaException(self._failed)

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failed = error
