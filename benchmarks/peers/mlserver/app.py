"""MLServer's Kafka server: KServe requests in JSON, its adaptive batching, one inference a batch.

In the server's own process (`parallel_workers` 0): passing requests to a worker process costs more than a small model, and this
version's ends at its start beside the uvloop that it is installed with. Tried over 1,500 events, ratios of events/s within 0.1:
batches of up to 20 ms (0.95), of up to 64 events (1.18, not the others' limit). So few it answers four times as quickly as a
larger backlog.
Of its log only the start is kept: it has a line for each request. It joins no consumer group, commits nothing and begins at the
topic's end.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from mlserver.cli import main as mlserver

from benchmarks.environments import ROOT
from benchmarks.peers.job import given_job


def main() -> int:
    job = given_job()
    folder = Path(sys.argv[1]).parent
    logs = {
        "version": 1,
        "disable_existing_loggers": False,
        "filters": {"start": {"()": "benchmarks.peers.mlserver.runtime.StartOnly"}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "filters": ["start"]}},
        "loggers": {"mlserver": {"level": "INFO", "handlers": ["stderr"], "propagate": False}},
    }
    settings = {
        "parallel_workers": 0,
        "kafka_enabled": True,
        "kafka_servers": job.bootstrap,
        "kafka_topic_input": job.input,
        "kafka_topic_output": job.output,
        "http_port": 0,
        "grpc_port": 0,
        "metrics_port": 0,
        "logging_settings": logs,
    }
    model = {
        "name": job.model,
        "implementation": "benchmarks.peers.mlserver.runtime.OnnxModel",
        "max_batch_size": job.max_events,
        "max_batch_time": job.max_wait_ms / 1000,
        "parameters": {"uri": job.model_file, "version": str(job.version)},
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    (folder / "model-settings.json").write_text(json.dumps(model))
    os.environ["PYTHONPATH"] = str(ROOT)
    sys.argv = ["mlserver", "start", str(folder)]
    mlserver()
    return 0


if __name__ == "__main__":
    sys.exit(main())
