"""The same consumer with transactions, as the client's documentation shows them: predictions and offsets commit together.

One transaction is open at a time and the loop waits for its commit, as the example of confluent-kafka does it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from confluent_kafka import TopicPartition

from benchmarks.peers.handwritten.consumer import Handwritten, serve

if TYPE_CHECKING:
    from benchmarks.peers.job import Job

# As Millstream's default. Tried: 20 ms makes a prediction 2 ms later and takes as much CPU.
_COMMIT_EVERY_S = 0.015


class Transactional(Handwritten):
    """consume -> decode -> infer -> encode -> produce -> (every 15 ms) offsets and commit."""

    checkpoint_every_s = _COMMIT_EVERY_S

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._producer.init_transactions()
        self._producer.begin_transaction()

    def producer_settings(self, job: Job) -> dict[str, Any]:
        """The producer's; a commit sends what waits. Tried: to linger for 1, 5 and 20 ms, 5 being best by less than the noise."""
        return {**super().producer_settings(job), "transactional.id": f"{job.group}-0"}

    def _checkpoint(self) -> None:
        if not self._unflushed:
            return
        assigned = self._consumer.assignment()
        read = [place for place in self._consumer.position(assigned) if place.offset >= 0]
        offsets = [TopicPartition(place.topic, place.partition, place.offset) for place in read]
        self._producer.send_offsets_to_transaction(offsets, self._consumer.consumer_group_metadata())
        self._producer.commit_transaction()
        self._producer.begin_transaction()
        self._unflushed = False


if __name__ == "__main__":
    sys.exit(serve(Transactional))
