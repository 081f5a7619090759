"""A pipeline with a rollout: its versions, its control topic, what was sent, and what each prediction says."""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import replace
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import fastavro
import yaml
from confluent_kafka.admin import AdminClient

from benchmarks.load import vector_events
from millstream.consumers.control.topic import open_reader, open_writer
from millstream.consumers.rollout.record import RolloutRecord, RolloutVariant
from millstream.consumers.rollout.revisions import Change, first_record, next_record
from millstream.consumers.rollout.slots import reallocated, whole
from millstream.consumers.schema_store import open_store
from millstream.pipeline.loading import load_pipeline
from millstream.schemas.records import ROLLOUT_PREDICTION
from millstream.schemas.wire import HEAD_BYTES, schema_id_of
from tests.broker.clients import create_topic, ensure_topic, produce, wait_until
from tests.consumers.service import Service, value_of, vector_service
from tests.consumers.serving.versions import CONFIG, delete_version, write_version

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka import Message

    from tests.broker.choice import Broker
    from tests.consumers.processes import Worker

NAMES = ("primary", "canary", "v3")
_SCHEMA = fastavro.parse_schema(ROLLOUT_PREDICTION.definition)


class RolloutScene:
    """A pipeline whose model's output is its version's number."""

    def __init__(self, folder: Path, kafka: Broker, *versions: int, **sections: Any) -> None:
        rollout = {"strategy": "manual", **sections.pop("rollout", {})}
        self.service: Service = vector_service(
            folder,
            kafka,
            model={"name": "vector", "version": 1, **sections.pop("model", {})},
            rollout=rollout,
            **sections,
        )
        self.models = folder / "models" / "vector"
        delete_version(self.models, 1)
        for number in versions:
            write_version(self.models, number)
        self.pipeline = load_pipeline(self.service.file, {})
        assert self.pipeline.rollout is not None
        self.topic = self.pipeline.rollout.topic
        for topic in (self.topic, self.pipeline.rollout.evaluations):
            if kafka.durable:
                create_topic(kafka.bootstrap, topic, 1, {"cleanup.policy": "compact"})
            else:
                ensure_topic(kafka.bootstrap, topic)
        self.sent = 0
        self.keys: dict[str, bytes] = {}  # event ID -> routing key
        self.records: dict[int, RolloutRecord] = {}  # by revision

    @property
    def record(self) -> RolloutRecord:
        """The newest."""
        return self.records[max(self.records)]

    def start(self, *shares: int, rollout: str = "r1", versions: tuple[int, ...] = (1, 2), **changed: Any) -> None:
        """Start a rollout. `shares`: percent of each variant."""
        variants = tuple(RolloutVariant(name, "vector", own) for name, own in zip(NAMES, versions, strict=False))
        slots = [100 * share for share in shares]
        empty = RolloutRecord(
            self.pipeline.name,
            1,
            0,
            "",
            0,
            "",
            "",
            "",
            rollout,
            "manual",
            "running",
            variants,
            reallocated(whole(), slots),
        )
        current = self.record if self.records else None
        self.write(first_record(replace(empty, **changed), current, self._change("start")))

    def shift(self, *shares: int, **changed: Any) -> None:
        """Change the shares, and perhaps more."""
        slots = [100 * share for share in shares]
        record = next_record(self.record, self._change("set"), expected=self.record.revision, shares=slots)
        self.write(replace(record, **changed))

    def write(self, record: RolloutRecord) -> None:
        """Write a record as commands do."""
        store = open_store(self.pipeline)
        with open_reader(self.pipeline, store) as reader:
            open_writer(self.pipeline, store, reader).write(record)
        self.records[record.revision] = record

    def write_foreign(self, value: bytes) -> None:
        """Write something that is no rollout."""
        produce(self.service.bootstrap, self.topic, [(self.pipeline.name.encode(), value)])

    def delete_topic(self) -> None:
        """Delete the control topic."""
        admin = AdminClient({"bootstrap.servers": self.service.bootstrap})
        admin.delete_topics([self.topic])[self.topic].result(30)
        wait_until(lambda: self.topic not in admin.list_topics(timeout=10).topics, 30, "the topic to go")

    def _change(self, action: str) -> Change:
        return Change(f"c{len(self.records)}", 1_700_000_000_000, "test", action, "because")

    def send(self, count: int, *, wait: bool = True) -> None:
        """Send events with new IDs, half of them without a key."""
        values = vector_events(count, seed=self.sent).values
        rows: list[tuple[bytes | None, bytes]] = []
        for row, value in enumerate(values):
            own = f"event-{self.sent + row:010d}".encode()
            key = b"key-%d" % (self.sent + row) if row % 2 else None
            rows.append((key, value[:6] + own + value[22:]))
            self.keys[own.decode()] = own if key is None else key
        produce(self.service.bootstrap, self.service.inputs[0], rows)
        self.sent += count
        if wait:
            self.service.wait_written(self.sent)

    def predictions(self) -> list[dict[str, Any]]:
        """Of each event, in their order. Each is there once, and its output shows the version that it names."""
        rows = sorted(map(rollout_prediction_of, self.service.predictions()), key=lambda row: str(row["event_id"]))
        assert [row["event_id"] for row in rows] == sorted(self.keys)
        assert [row["outputs"] for row in rows] == [{"score": float(row["version"])} for row in rows]
        return rows

    def variants(self) -> Counter[str]:
        """How many predictions each variant has."""
        return Counter(row["variant"] for row in self.predictions())


def write_python_version(models: Path, number: int, body: str, *, loading: str = "pass") -> None:
    """Add a version that runs `body` with `x`, and then answers its number, as the others do. `loading`: runs before."""
    version = models / str(number)
    version.mkdir()
    (version / "config.yaml").write_text(yaml.safe_dump(CONFIG), encoding="utf-8")
    lines = [*dedent(body).strip().splitlines(), f'return {{"score": np.full((len(x), 1), {number}, np.float32)}}']
    head = (
        "import time\n\nimport numpy as np\n\n\nclass Model:\n    def __init__(self, folder, device): "
        + f"{loading}\n\n"
    )
    head += '    def predict(self, inputs):\n        x = inputs["x"]\n'
    (version / "model.py").write_text(head + "".join(f"        {line}\n" for line in lines), encoding="utf-8")


def rollout_prediction_of(message: Message) -> dict[str, Any]:
    """The prediction in a record; times are integers."""
    value = value_of(message)
    assert schema_id_of(value) == ROLLOUT_PREDICTION.reserved_id
    row: Any = fastavro.schemaless_reader(io.BytesIO(value[HEAD_BYTES:]), _SCHEMA, None)
    assert isinstance(row, dict)
    return row


def until_revision(worker: Worker, revision: int, timeout: float = 30) -> None:
    """Wait until the worker routes by this revision."""
    worker.wait_for(
        lambda: worker.metrics().get("millstream_rollout_revision") == revision, timeout, f"at revision {revision}"
    )


def is_loaded(worker: Worker, variant: str, version: int) -> bool:
    """Whether the worker has loaded this variant."""
    name = f"millstream_rollout_loaded{{model=vector,variant={variant},version={version}}}"
    return worker.metrics().get(name) == 1
