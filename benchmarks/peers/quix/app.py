"""Quix Streams: a sink of our own scores in batches; it is told at each checkpoint, every 100 ms, to write what is left.

Tried: `apply` with one inference an event and `to_topic`, as in Quix's tutorials: nearly four times the CPU, most of it for
tensors and model calls of one event. There `commit_interval` 5 s (the default) took a tenth less than 0.1 s.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

from quixstreams import Application
from quixstreams.sinks import BaseSink

from benchmarks.peers.job import Job, given_job
from benchmarks.peers.scorer import Scorer
from benchmarks.peers.writer import Writer


class ScoringSink(BaseSink):  # type: ignore[misc]  # its types are not here
    """Predictions to the output topic, a batch at a time."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self._job = job
        self._scorer = Scorer(job)
        self._keys: list[bytes | None] = []
        self._values: list[bytes] = []
        self._writer = Writer(job)

    def add(self, *, value: bytes, key: bytes | None, **_: Any) -> None:
        """See Quix."""
        self._keys.append(key)
        self._values.append(value)
        if len(self._values) == self._job.max_events:
            self._score()

    def flush(self) -> None:
        """See Quix: called before offsets are committed."""
        self._score()
        self._writer.flush()

    def on_paused(self) -> None:
        """See Quix."""
        self._keys, self._values = [], []

    def _score(self) -> None:
        if not self._values:
            return
        self._writer.write(zip(self._keys, self._scorer.score(self._values), strict=True))
        self._keys, self._values = [], []


def main() -> int:
    job = given_job()
    app = Application(
        broker_address=job.bootstrap,
        consumer_group=job.group,
        auto_offset_reset="earliest",
        auto_create_topics=False,
        commit_interval=0.1,
        consumer_extra_config={"fetch.queue.backoff.ms": 20},  # see handwritten/consumer.py
        loglevel=logging.WARNING,
    )
    events = app.topic(job.input, value_deserializer="bytes", key_deserializer="bytes")
    app.dataframe(events).sink(ScoringSink(job))
    app.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
