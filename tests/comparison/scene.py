"""A pipeline with a shadow for the comparison job, comparisons and labels for it, and the job as a process."""

from __future__ import annotations

import json
import os
import signal
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
import pytest
import yaml
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from millstream.consumers.comparison.show import read_results
from millstream.consumers.schema_store import open_store
from millstream.consumers.supervision.child import MILLSTREAM, reported_port, scrape
from millstream.pipeline.loading import load_pipeline
from millstream.pipeline.pipeline import Pipeline
from millstream.schemas.comparisons import ComparisonEncoder, PrimaryRows, Variant
from millstream.schemas.records import COMPARISON
from millstream.schemas.row_models import RowModels
from millstream.topics.local.child import start
from tests.broker.clients import create_topics, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from tests.broker.choice import Broker

LABEL_SCHEMA = {
    "type": "record",
    "name": "Outcome",
    "fields": [{"name": "event", "type": "string"}, {"name": "happened", "type": "boolean"}],
}
START = 1_378_000_800_000  # 2013-09-01T02:00Z
MINUTE = 60_000
Floats = npt.NDArray[np.float64]
Row = tuple[bytes | None, bytes | None]
"""A record's key and value."""


@dataclass(frozen=True)
class Events:
    """Events with both answers and the outcome; one entry an event."""

    ids: list[str]
    times: npt.NDArray[np.int64]
    primary: Floats
    shadow: Floats
    labels: npt.NDArray[np.bool_]

    @classmethod
    def make(cls, count: int, *, seed: int = 1, start: int = START, span: int = 3 * 60 * MINUTE) -> Events:
        rng = np.random.default_rng(seed)
        truth = rng.normal(size=count)
        scores = [1 / (1 + np.exp(-2 * (truth + noise * rng.normal(size=count)))) for noise in (1.0, 0.5)]
        labels = truth + 0.7 * rng.normal(size=count) > 0.5
        times = np.sort(start + rng.integers(0, span, count))
        return cls([f"event-{seed}-{number}" for number in range(count)], times, scores[0], scores[1], labels)

    def part(self, first: int, last: int) -> Events:
        rows = slice(first, last)
        return Events(self.ids[rows], self.times[rows], self.primary[rows], self.shadow[rows], self.labels[rows])

    def inside(self, start: int, end: int) -> Events:
        first, last = np.searchsorted(self.times, [start, end]).tolist()
        return self.part(first, last)


def exact_auc(scores: Any, labels: Any) -> float:
    """By definition: all pairs of a positive and a negative event."""
    return float((scores[labels][:, None] > scores[~labels]).mean())


def check(row: dict[str, Any], events: Events) -> None:
    """Hold a window's result against exact computation over its events, each with its label."""
    inside = events.inside(row["window_start"], row["window_end"])
    assert row["events"] == row["labelled"] == len(inside.ids)
    for side, scores in ((row["primary"], inside.primary), (row["shadow"], inside.shadow)):
        assert side["auc"] == pytest.approx(exact_auc(scores, inside.labels), abs=5e-4)
        assert side["brier"] == pytest.approx(((scores - inside.labels) ** 2).mean())
    assert row["agreement"] == pytest.approx(((inside.primary >= 0.5) == (inside.shadow >= 0.5)).mean())


@dataclass(frozen=True)
class Scene:
    """A pipeline file and its topics."""

    file: Path
    pipeline: Pipeline
    bootstrap: str
    producers: dict[str, Producer] = field(default_factory=dict)

    @property
    def producer(self) -> Producer:
        """As the service's: keys are placed as Java's clients place them."""
        if "it" not in self.producers:
            self.producers["it"] = Producer({"bootstrap.servers": self.bootstrap, "partitioner": "murmur2_random"})
        return self.producers["it"]

    def compare(self, events: Events, errors: dict[int, str] | None = None) -> None:
        """Write the comparisons of these events."""
        self.write(self.pipeline.comparison.topic, self.comparisons(events, errors))

    def comparisons(self, events: Events, errors: dict[int, str] | None = None) -> list[Row]:
        """The comparisons of these events."""
        encoder = ComparisonEncoder(COMPARISON.reserved_id, self.pipeline.name, shadow=Variant("delay", 2))
        rng = np.random.default_rng(0)
        rows = len(events.ids)
        good = [row for row in range(rows) if row not in (errors or {})]
        values = encoder.encode(
            events.ids,
            [None] * rows,
            events.times,
            PrimaryRows(RowModels([("delay", 1)]), {"p": events.primary}, rng.gamma(2, 3, rows)),
            {"p": events.shadow[good]},
            rng.gamma(2, 4, rows),
            errors,
        )
        return [(event.encode(), value) for event, value in zip(events.ids, values, strict=True)]

    def label(self, ids: Sequence[str], labels: Sequence[bool]) -> None:
        """Write labels."""
        assert self.pipeline.labels is not None
        self.write(self.pipeline.labels.topic, self.labels(ids, labels))

    def labels(self, ids: Sequence[str], labels: Sequence[bool]) -> list[Row]:
        """Labels, on a key that is not the event id."""
        return [
            (b"k%d" % (number % 7), json.dumps({"event": event, "happened": bool(label)}).encode())
            for number, (event, label) in enumerate(zip(ids, labels, strict=True))
        ]

    def write(self, topic: str, rows: Sequence[Row]) -> None:
        for key, value in rows:
            while True:
                try:
                    self.producer.produce(topic, value, key)
                    break
                except BufferError:
                    self.producer.poll(0.1)
        assert self.producer.flush(30) == 0

    def results(self) -> list[dict[str, Any]]:
        """The newest result of each window."""
        return read_results(self.pipeline, open_store(self.pipeline))


def comparison_scene(folder: Path, kafka: Broker, *, partitions: int = 4, **sections: dict[str, Any]) -> Scene:
    """Write `pipeline.yaml` and the labels' schema, and make the topics; `sections` add to the file's."""
    name = f"compare-{uuid.uuid4().hex[:8]}"
    (folder / "schemas").mkdir()
    (folder / "schemas" / "1-outcome.avsc").write_text(json.dumps(LABEL_SCHEMA))
    document: dict[str, Any] = {
        "name": name,
        "kafka": {"bootstrap": kafka.bootstrap},
        "input": {"topic": f"{name}-events", "format": "json", "schema": "outcome", **sections.pop("input", {})},
        "output": {"topic": f"{name}-predictions"},
        "model": {"name": "delay", "version": 1},
        "shadows": [{"version": 2}],
        "comparison": {"window": "1h", "update_every": "500ms", **sections.pop("comparison", {})},
        "labels": {
            "topic": f"{name}-outcomes",
            "format": "json",
            "schema": "outcome",
            "event_id": "event",
            "value": "happened",
            **sections.pop("labels", {}),
        },
        **sections,
    }
    file = folder / "pipeline.yaml"
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    pipeline = load_pipeline(file, {})
    assert pipeline.labels is not None
    topics: dict[str, tuple[int, dict[str, str]]] = {
        pipeline.input.topics[0]: (1, {}),
        pipeline.output.topic: (1, {}),
        pipeline.dead_letters.topic: (1, {}),
        pipeline.comparison.topic: (partitions, {}),
        pipeline.comparison.evaluations: (1, {"cleanup.policy": "compact"}),
        pipeline.labels.topic: (2, {}),
    }
    create_topics(kafka.bootstrap, topics)
    return Scene(file, pipeline, kafka.bootstrap)


class Job:
    """`millstream compare` as a process; a context manager that leaves none behind."""

    def __init__(self, scene: Scene, *options: str) -> None:
        self._scene = scene
        self._log = scene.file.with_name(f"compare-{os.urandom(4).hex()}.log")
        self._process = start([*MILLSTREAM, "compare", str(scene.file), *options], self._log)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> str:
        """What it has said so far."""
        return self._log.read_text("utf-8", errors="replace")

    def wait_for_results(self, timeout: float = 150, **expected: int) -> list[dict[str, Any]]:
        """Wait until these figures, summed over the windows, are as expected."""
        found: dict[str, int] = {}
        rows: list[dict[str, Any]] = []

        def there() -> bool:
            rows[:] = self._scene.results()
            found.update({name: sum(row[name] for row in rows) for name in expected})
            return found == expected

        try:
            self.wait_for(there, f"at results with {expected}", timeout)
        except TimeoutError as error:
            raise TimeoutError(f"{error} Found {found}.") from None
        return rows

    def wait_for(self, condition: Callable[[], bool], what: str, timeout: float = 150) -> None:
        """Wait for something that the running job does."""

        def holds() -> bool:
            if self._process.poll() is not None:
                raise AssertionError(f"The job ended. Its log:\n{self.log}")
            return condition()

        wait_until(holds, timeout, f"the job to be {what}")

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's values with these labels; needs `--metrics-port 0`."""
        port = reported_port(self.log)
        text = (None if port is None else scrape(port)) or ""
        samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
        return sum(s.value for s in samples if s.name == name and labels.items() <= s.labels.items())

    def left_out(self, reason: str) -> float:
        return self.metric("millstream_comparison_left_out_total", reason=reason)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self, timeout: float = 60) -> int:
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(timeout)

    def wait(self, timeout: float = 60) -> int:
        return self._process.wait(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self.kill()
        if error is not None:
            error.add_note(f"The job's log ends:\n{self.log[-4000:]}")
