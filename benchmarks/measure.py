"""Measures one peer with one workload: first a backlog, as fast as the peer can, then a fixed rate, in the same process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import msgspec
import numpy as np
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from benchmarks.environments import ROOT
from benchmarks.errors import PeerFailedError
from benchmarks.latency import Latency, measure
from benchmarks.load import Load, write_held_load, write_load
from benchmarks.peers.job import Job
from benchmarks.peers.scorer import Scorer
from benchmarks.processes import cpu_seconds, peak_mib
from benchmarks.progress import Sample, Throughput, throughput
from millstream.schemas.records import PREDICTION
from tests.broker.clients import create_topic, read_all

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import Message

    from benchmarks.peers.known import Command
    from benchmarks.workloads import Workload

PARTITIONS = 4
LOOK_EVERY = 0.04  # seconds
SETTLED = 0.5  # after this many seconds without a new prediction, all predictions are there
RUN_TIMEOUT = 240  # seconds
STOP_TIMEOUT = 20  # seconds
COMPARED = 200  # predictions that are compared with the model's own outputs
LEADERLESS = {
    KafkaError._NOENT,  # as the client says it
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_LEADER_EPOCH,
}
PREDICTION_SCHEMA = ROOT / "schemas" / "1000001-prediction-v1.avsc"


@dataclass(frozen=True, slots=True)
class Backlog:
    """A workload's events; all IDs are different."""

    workload: Workload
    warm: Load  # written before the peer starts, to warm it up; not measured
    events: Load  # the backlog that is measured
    later: Load  # sent at a fixed rate


def split(workload: Workload, load: Load, events: int) -> Backlog:
    """A backlog of this many events, after a tenth as many to warm up, and then the events at a fixed rate."""
    warm, later = events // 10, workload.rate * workload.seconds
    bounds = pairwise((0, warm, warm + events, warm + events + later))
    return Backlog(workload, *(load.part(*ends) for ends in bounds))


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one run of a peer."""

    throughput: Throughput
    latency: Latency | None  # None: not measured, or the peer didn't keep up


def run_peer(
    command: Command, bootstrap: str, backlog: Backlog, run: str, *, latency: bool, ready: str | None = None
) -> Figures:
    """Run one peer as group `run`, with its own topics.

    Args:
        command: the command that starts the peer.
        bootstrap: the broker.
        backlog: the events.
        run: a unique name.
        latency: whether to measure the latency at a fixed rate, too.
        ready: the text in the peer's log that shows that it reads. It misses events written before.

    Raises:
        PeerFailedError: the peer ended, gave wrong predictions, lost or doubled events, or didn't finish.
    """
    job = job_of(backlog.workload, bootstrap, run)
    for topic in (job.input, job.output, job.dead):
        create_topic(bootstrap, topic, PARTITIONS, {})
    if ready is None:
        write_load(bootstrap, job.input, backlog.warm)
    with tempfile.TemporaryDirectory() as made:
        folder, ends = Path(made), Ends(bootstrap, job.output)
        with started(command(job, folder), folder) as process:
            watch = Watch(process, ends, folder / "log")
            if ready is not None:
                watch.until_log_says(ready)
                write_load(bootstrap, job.input, backlog.warm)
            warm = len(backlog.warm.values)
            first = next(sample.time for sample in watch.until(warm) if any(sample.ends.values()))
            # The backlog is written while the peer is warm and idle. It becomes readable at once, so the peer can't fetch ahead.
            commit = write_held_load(bootstrap, job.input, backlog.events)
            before = watch.look()
            commit()
            samples = [before, *watch.until(warm + len(backlog.events.values))]
            messages = read_all(bootstrap, job.output)
            _check(backlog, job, messages)
            figures = throughput(first, samples, _offsets(messages), peak_mib(process.pid))
            waits = _latency(bootstrap, backlog, job) if latency else None
    return Figures(figures, waits)


def job_of(workload: Workload, bootstrap: str, run: str) -> Job:
    """The job of a run."""
    config = workload.config()
    inputs = [
        {**entry, "shape": entry.get("shape") or [len(entry["fields"])], "dtype": entry.get("dtype", "float32")}
        for entry in config["inputs"]
    ]
    outputs = [{"tensor": entry["tensor"], "name": entry.get("name", entry["tensor"])} for entry in config["outputs"]]
    return Job(
        bootstrap=bootstrap,
        group=run,
        input=f"{run}-in",
        output=f"{run}-out",
        dead=f"{run}-dead",
        format=workload.format,
        nested=workload.nested,
        schema=str(workload.folder / "schemas" / workload.schema),
        prediction_schema=str(PREDICTION_SCHEMA),
        model_file=str(workload.model_folder / "model.onnx"),
        model=workload.model,
        version=1,
        inputs=inputs,
        outputs=outputs,
        event_id="id",
        event_time=workload.event_time,
        max_events=workload.max_events,
        max_wait_ms=workload.max_wait_ms,
    )


def delete_topics(bootstrap: str, prefix: str) -> None:
    """Delete the topics whose names start with this prefix. Raises KafkaException."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    mine = [topic for topic in admin.list_topics(timeout=30).topics if topic.startswith(prefix)]
    for deleted in admin.delete_topics(mine).values():
        deleted.result()


@contextmanager
def started(command: list[str], folder: Path, tree: Path = ROOT) -> Iterator[subprocess.Popen[bytes]]:
    """Run the command with the code in `tree`. Its output goes to `log` in the folder. The process ends with the context.

    Python keeps the bytecode of what it imports, as pip does when it installs a package. Otherwise, each start would compile it.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=tree, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Ends:
    """The ends of a topic's partitions, as readers of committed records see them.

    Create it before the peer starts. If a client sends its first request before it is connected, it retries only after 3 seconds
    (librdkafka's rd_kafka_topic_partition_list_query_leaders_async), and would see the first prediction too late.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(PARTITIONS)}  # type: ignore[no-untyped-call]
        self.now()

    def now(self) -> dict[int, int]:
        """The end of each partition. If the machine stood still for seconds, partitions may lack a leader: then it asks again."""
        asked_until = time.monotonic() + RUN_TIMEOUT
        while True:
            found = self._admin.list_offsets(
                self._asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=30
            )
            try:
                return {asked.partition: future.result().offset for asked, future in found.items()}
            except KafkaException as error:
                if error.args[0].code() not in LEADERLESS or time.monotonic() > asked_until:
                    raise
                self._admin.list_topics(timeout=30)


class Watch:
    """Looks at a peer's process and at the ends of its output's partitions."""

    def __init__(self, process: subprocess.Popen[bytes], ends: Ends, log: Path) -> None:
        self._process = process
        self._log = log
        self._started = time.monotonic()
        self._ends = ends

    def look(self) -> Sample:
        """One look."""
        ends = self._ends.now()
        return Sample(time.monotonic() - self._started, cpu_seconds(self._process.pid), ends)

    def until_log_says(self, text: str) -> None:
        """Wait for it, and a little longer. Raises PeerFailedError."""
        limit = time.monotonic() + RUN_TIMEOUT
        while text not in self._log.read_text(errors="replace"):
            if self._process.poll() is not None or time.monotonic() > limit:
                raise PeerFailedError(f"it never said {text!r}: {self._log.read_text(errors='replace')[-3000:]}")
            time.sleep(LOOK_EVERY)
        time.sleep(1)

    def until(self, events: int) -> list[Sample]:
        """Look until so many predictions are written and no more come. Raises PeerFailedError."""
        samples, changed = [self.look()], time.monotonic()
        limit = changed + RUN_TIMEOUT
        while True:
            time.sleep(LOOK_EVERY)
            samples.append(self.look())
            written, now = sum(samples[-1].ends.values()), time.monotonic()
            if samples[-1].ends != samples[-2].ends:
                changed = now
            # More may be seen than are there: a transaction's marker takes an offset too.
            if written >= events and now - changed >= SETTLED:
                return samples
            if self._process.poll() is not None or now > limit:
                code = self._process.returncode
                how = "did not finish" if code is None else f"ended with status {code}"
                end = self._log.read_text(errors="replace")[-3000:]
                raise PeerFailedError(f"it {how}, with {written} of {events} predictions written. Its log ends:\n{end}")


def _offsets(messages: list[Message]) -> dict[int, np.ndarray[Any, np.dtype[np.int64]]]:
    offsets: dict[int, list[int]] = {}
    for message in messages:
        offsets.setdefault(message.partition() or 0, []).append(message.offset() or 0)
    return {partition: np.array(of, np.int64) for partition, of in offsets.items()}


def _check(backlog: Backlog, job: Job, messages: list[Message]) -> None:
    """Every event is answered once, and the first ones as the model answers. Raises PeerFailedError."""
    id_of = backlog.workload.id_of
    values = {id_of(message.value() or b""): message.value() or b"" for message in messages}
    wanted = len(backlog.warm.values) + len(backlog.events.values)
    if len(messages) != wanted or len(values) != wanted:
        raise PeerFailedError(f"{len(messages)} predictions, {len(values)} different ones, for {wanted} events")
    sample = backlog.events.values[:COMPARED]
    for value, reference in zip(sample, Scorer(job).score(sample), strict=True):
        answer = outputs_of(values[id_of(value)], job.format)
        for name, expected in outputs_of(reference, "avro" if job.format == "avro" else "json").items():
            if not np.allclose(answer[name], expected, atol=1e-4):
                raise PeerFailedError(
                    f"event {id_of(value)}: output {name} is {answer[name]}, the model says {expected}"
                )


def outputs_of(value: bytes, form: str) -> dict[str, Any]:
    """A prediction's outputs by name."""
    if form == "kserve":
        answer: dict[str, Any] = msgspec.json.decode(value)
        return {output["name"]: output["data"] for output in answer["outputs"]}
    if form == "json":
        decoded: dict[str, dict[str, Any]] = msgspec.json.decode(value)
        return decoded["outputs"]
    read: Any = fastavro.schemaless_reader(BytesIO(value[5:]), _PARSED, None)
    outputs: dict[str, Any] = read["outputs"]
    return outputs


_PARSED = fastavro.parse_schema(PREDICTION.definition)


def _latency(bootstrap: str, backlog: Backlog, job: Job) -> Latency | None:
    """None where it does not keep up with the rate."""
    try:
        return latency_of(bootstrap, backlog.workload, backlog.later, job)
    except TimeoutError as error:
        print(f"{job.group} at {backlog.workload.rate} events/s: {error}", file=sys.stderr)
        return None


def latency_of(bootstrap: str, workload: Workload, load: Load, job: Job) -> Latency:
    """Measure a running peer with these events, at the workload's rate. Raises TimeoutError if predictions are missing."""
    ids = [workload.id_of(value) for value in load.values]
    topics = (job.input, job.output)
    return measure(bootstrap, topics, load, workload.rate, lambda m: workload.id_of(m.value() or b""), ids)
