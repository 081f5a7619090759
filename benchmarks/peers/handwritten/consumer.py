"""The consumer an engineer writes by hand in an hour, at least once: confluent-kafka, fastavro and ONNX Runtime.

One process, one thread of Python. It is tuned as somebody who knows these libraries would tune it; what was tried is beside
each choice.
"""

from __future__ import annotations

import signal
import sys
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from benchmarks.peers.job import Job, given_job
from benchmarks.peers.scorer import Scorer

if TYPE_CHECKING:
    from collections.abc import Sequence

_CHECKPOINT_EVERY_S = 0.1


def serve(kind: type[Handwritten]) -> int:
    """Run a consumer of this kind over the given job, until SIGTERM."""
    consumer = kind(given_job())
    signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
    consumer.run()
    return 0


class Handwritten:
    """consume -> decode -> infer -> encode -> produce -> (every 100 ms) flush and commit."""

    checkpoint_every_s = _CHECKPOINT_EVERY_S

    def __init__(self, job: Job) -> None:
        self._job = job
        self._scorer = Scorer(job)
        self._consumer = Consumer(_consumer_settings(job))
        self._producer = Producer({**self.producer_settings(job), "on_delivery": self._delivered})
        self._failed: KafkaError | None = None
        self._unflushed = False
        self._stopping = False

    def producer_settings(self, job: Job) -> dict[str, Any]:
        """The producer's."""
        return {
            "bootstrap.servers": job.bootstrap,
            "enable.idempotence": True,
            # As long as the batch's window. Tried: 20 ms takes about 15 % less CPU and makes each prediction wait for it.
            "linger.ms": 5,
            "batch.size": 1_000_000,
            # A callback for each prediction is a call into Python that says nothing new: flush() counts them.
            "delivery.report.only.error": True,
        }

    def stop(self) -> None:
        """End after the batch in hand."""
        self._stopping = True

    def run(self) -> None:
        """Until stopped."""
        self._consumer.subscribe([self._job.input])
        checkpoint_at = time.monotonic() + self.checkpoint_every_s
        while not self._stopping:
            # One call both batches by count and by time, and leaves the interpreter lock. Tried on a backlog:
            # poll() per message, and consume(4096) cut into batches: no difference beyond the noise.
            messages = self._consumer.consume(self._job.max_events, self._job.max_wait_ms / 1000)
            if messages:
                self._process(messages)
            now = time.monotonic()
            if now >= checkpoint_at:
                self._checkpoint()
                checkpoint_at = now + self.checkpoint_every_s
        self._checkpoint()
        self._consumer.close()

    def _process(self, messages: Sequence[Message]) -> None:
        ingest_time = int(time.time() * 1000)
        events: list[dict[str, Any]] = []
        keys: list[bytes | None] = []
        decode = self._scorer.decode
        for message in messages:
            error = message.error()
            if error is not None:
                raise KafkaException(error)
            value, key = message.value(), message.key()
            try:
                events.append(decode(value))
                keys.append(key)
            except Exception as problem:  # fastavro raises whatever it stumbles on: the record is bad
                self._produce(self._job.dead, value, key, f"{type(problem).__name__}: {problem}")
        if events:
            for key, prediction in zip(keys, self._scorer.score_decoded(events, ingest_time), strict=True):
                self._produce(self._job.output, prediction, key)
        self._unflushed = True
        self._producer.poll(0)

    def _produce(self, topic: str, value: bytes | None, key: bytes | None, error: str = "") -> None:
        while True:
            try:
                self._producer.produce(topic, value, key, headers=[("error", error)] if error else None)
                return
            except BufferError:
                self._producer.poll(0.1)

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

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failed = error


def _consumer_settings(job: Job) -> dict[str, Any]:
    return {
        "bootstrap.servers": job.bootstrap,
        "group.id": job.group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "partition.assignment.strategy": "cooperative-sticky",
        # Who is quicker than it fetches ahead waits for the rest of a second by default.
        "fetch.queue.backoff.ms": 20,
    }


if __name__ == "__main__":
    sys.exit(serve(Handwritten))
