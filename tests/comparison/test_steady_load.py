"""The comparison job under a steady load of many small fetches: it commits at once, and windows become final in time."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Self

import pytest
from confluent_kafka import Consumer, TopicPartition

from millstream.consumers.comparison.names import app_name
from millstream.topics.records import bounds
from tests.comparison.scene import Events, Job, Scene, check, comparison_scene

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker

pytest.importorskip("faust", reason="the comparison job's packages: make .venv/.comparison")
pytestmark = [pytest.mark.durable, pytest.mark.full]
RATE = 300  # events per second
MOST_SECONDS = 90
LABELS_LATE_MS = 3000
PARTITIONS = 2


class Load:
    """Writes each comparison at its event's time, and the label 3 s later; a context manager."""

    def __init__(self, scene: Scene) -> None:
        start = time.time_ns() // 1_000_000
        self.events = Events.make(RATE * MOST_SECONDS, start=start, span=MOST_SECONDS * 1000)
        self._scene = scene
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        events, scene, labels = self.events, self._scene, self._scene.pipeline.labels
        assert labels is not None
        outcomes = scene.labels(events.ids, events.labels.tolist())
        waiting = [
            (labels.topic, outcomes, events.times + LABELS_LATE_MS),
            (scene.pipeline.comparison.topic, scene.comparisons(events), events.times),
        ]
        written = [0, 0]
        while not self._over.wait(0.02):
            now = time.time_ns() // 1_000_000
            for number, (topic, rows, times) in enumerate(waiting):
                due = int(times.searchsorted(now))
                scene.write(topic, rows[written[number] : due])
                written[number] = due

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def waiting(consumer: Consumer, topic: str) -> int:
    """Comparisons behind the committed offsets."""
    places = consumer.committed([TopicPartition(topic, number) for number in range(PARTITIONS)], timeout=10)
    return sum(bounds(consumer, topic, place.partition)[1] - max(place.offset, 0) for place in places)


def finals(scene: Scene) -> dict[int, dict[str, Any]]:
    """The final results, without the time when they were written, by their windows' start."""
    return {
        row["window_start"]: {name: value for name, value in row.items() if name != "updated_at"}
        for row in scene.results()
        if row["final"]
    }


def test_windows_become_final_under_load_and_stay_so_after_a_restart(tmp_path: Path, kafka: Broker) -> None:
    scene = comparison_scene(
        tmp_path,
        kafka,
        partitions=PARTITIONS,
        comparison={"window": "10s", "update_every": "3s"},
        labels={"wait": "10s"},
    )
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": app_name(scene.pipeline)})
    try:
        with Job(scene, "--metrics-port", "0") as job:
            job.wait_for(lambda: job.metric("millstream_comparison_update_seconds") > 0, "at work")
            with Load(scene) as load:
                job.wait_for(lambda: bool(finals(scene)), "done with a window", 60)
                assert job.stop() == 0
                assert "falls behind" not in job.log
                before = finals(scene)
                with Job(scene) as again:
                    again.wait_for(lambda: len(finals(scene)) > len(before), "done with another window", 60)
                    load.stop()
                    topic = scene.pipeline.comparison.topic
                    again.wait_for(lambda: waiting(consumer, topic) == 0, "done with all comparisons", 20)
                    assert again.stop() == 0
    finally:
        consumer.close()
    after = finals(scene)
    assert {start: after[start] for start in before} == before
    for row in after.values():
        check(row, load.events)
