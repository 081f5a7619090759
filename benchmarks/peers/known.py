"""Who takes part, and the command that runs each over a job."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.environments import java_of, onnxruntime_library, python_of, rust_of
from benchmarks.peers.job import Job

Command = Callable[[Job, Path], list[str]]
"""A job and a folder to write to -> the command that runs it."""

OURS = "Millstream"
OURS_EXACTLY_ONCE = "Millstream, exactly once"
OURS_TWO_WORKERS = "Millstream, exactly once, two workers"
HANDWRITTEN = "hand-written"
HANDWRITTEN_EXACTLY_ONCE = "hand-written, exactly once"
JAVA = "Java"
RUST = "Rust"
FAUST = "Faust"
FRAMEWORKS = ("Bytewax", "Quix Streams", "arroyo")


@dataclass(frozen=True, slots=True)
class Peer:
    """Something that answers events."""

    name: str
    prepare: Callable[[], Command]  # installs or builds what it needs; raises LeftOutError
    part: float = 1  # of a workload's events: slow ones take fewer, so that a run ends
    about: str = ""
    nested: bool = False  # whether it reads nested orders
    kserve: bool = False  # whether it takes KServe requests, and so the vector workload alone
    ready: str | None = None  # text in its log after which all of it reads; the events to warm up come then

    @property
    def slug(self) -> str:
        """Its name in names of topics."""
        return self.name.lower().replace(" ", "-").replace(",", "")


def millstream(delivery: str, workers: int = 1) -> Command:
    """One worker as users start it, with the metrics' server on; or several, each a process, below their supervisor."""

    def command(job: Job, folder: Path) -> list[str]:
        schema, model = Path(job.schema), Path(job.model_file)
        name = schema.stem.partition("-")[2]
        pipeline = {
            "name": job.group,
            "kafka": {"bootstrap": job.bootstrap},
            "schemas": {"directory": str(schema.parent)},
            "input": {
                "topics": [job.input],
                "format": job.format,
                "event_id": job.event_id,
                "event_time": job.event_time,
                # JSON needs no schema: the paths of the mapping are enough.
                **({"event_time_format": "iso8601"} if job.nested and job.format == "json" else {"schema": name}),
            },
            "output": {"topic": job.output, "format": job.format},
            "dead_letters": {"topic": job.dead},
            "model": {"name": job.model, "version": job.version, "repository": str(model.parents[2]), "device": "cpu"},
            "batch": {"max_events": job.max_events, "max_wait": f"{job.max_wait_ms}ms"},
            "delivery": delivery,
        }
        file = folder / "pipeline.yaml"
        file.write_text(json.dumps(pipeline))  # JSON is YAML
        one, several = ["work", "--log-level", "warning"], ["run", "--workers", str(workers), "--plain"]
        metrics = ["--metrics-port", "0", "--metrics-host", "127.0.0.1"]
        return [sys.executable, "-m", "millstream", *(one if workers == 1 else several), *metrics, str(file)]

    return command


def _handwritten(module: str) -> Command:
    return lambda job, folder: [sys.executable, "-m", f"benchmarks.peers.handwritten.{module}", str(job.write(folder))]


def _python(peer: str) -> Callable[[], Command]:
    def prepare() -> Command:
        python = str(python_of(peer))
        return lambda job, folder: [python, "-m", f"benchmarks.peers.{peer}.app", str(job.write(folder))]

    return prepare


def _java() -> Command:
    command = java_of("java")
    return lambda job, folder: [*command, str(job.write(folder))]


def _rust() -> Command:
    command, library = rust_of("rust"), onnxruntime_library()
    return lambda job, folder: [*command, str(job.write(folder)), library]


PEERS = (
    Peer(OURS, lambda: millstream("at_least_once"), about="one worker, metrics on", nested=True),
    Peer(OURS_EXACTLY_ONCE, lambda: millstream("exactly_once"), about="the same in transactions", nested=True),
    Peer(OURS_TWO_WORKERS, lambda: millstream("exactly_once", 2), about="one a core", ready="2/2 workers"),
    Peer(HANDWRITTEN, lambda: _handwritten("consumer"), about="confluent-kafka, fastavro, at least once", nested=True),
    Peer(HANDWRITTEN_EXACTLY_ONCE, lambda: _handwritten("exactly_once"), about="the same in transactions", nested=True),
    Peer(JAVA, _java, about="kafka-clients, Avro without generic records, at least once"),
    Peer(RUST, _rust, about="rdkafka, Avro by hand, at least once: the native floor", nested=True),
    Peer("arroyo", _python("arroyo"), 0.3, "sentry-arroyo's BatchStep"),
    Peer("Bytewax", _python("bytewax"), 0.3, "flat_map_batch"),
    Peer("Quix Streams", _python("quix"), 0.3, "a sink that scores batches"),
    Peer(FAUST, _python("faust"), 0.1, "faust-streaming's take"),
    Peer(
        "MLServer",
        _python("mlserver"),
        0.016,
        "its Kafka server, requests in JSON",
        kserve=True,
        ready="Kafka server consuming",
    ),
)
