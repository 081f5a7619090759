"""The comparison job on a real broker, as a process."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from millstream.consumers.comparison.names import app_name
from tests.comparison.scene import MINUTE, START, Events, Job, check, comparison_scene

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker

pytest.importorskip("faust", reason="the comparison job's packages: make .venv/.comparison")
pytestmark = pytest.mark.durable
HOUR = 60 * MINUTE


def test_results_are_what_exact_computation_over_all_events_says(tmp_path: Path, kafka: Broker) -> None:
    scene, events = comparison_scene(tmp_path, kafka), Events.make(3000)
    scene.label(events.ids[:500], events.labels[:500].tolist())  # early
    with Job(scene) as job:
        scene.compare(events)
        scene.label(events.ids[500:], events.labels[500:].tolist())
        rows = job.wait_for_results(events=3000, labelled=3000)
        assert job.stop() == 0
        assert "A second SIGTERM stops it at once" in job.log
    assert [row["window_start"] for row in rows] == [START - START % HOUR + n * HOUR for n in range(len(rows))]
    for row in rows:
        check(row, events)


def test_offsets_are_committed_behind_a_first_fetch_of_one_record(tmp_path: Path, kafka: Broker) -> None:
    scene, events = comparison_scene(tmp_path, kafka, partitions=1), Events.make(200)
    place = TopicPartition(scene.pipeline.comparison.topic, 0)
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": app_name(scene.pipeline)})

    def committed(offset: int) -> bool:
        return bool(consumer.committed([place], timeout=10)[0].offset == offset)

    try:
        with Job(scene) as job:
            scene.compare(events.part(0, 1))
            job.wait_for(lambda: committed(1), "done with the first comparison")
            scene.compare(events.part(1, 200))
            job.wait_for(lambda: committed(200), "done with all comparisons")
            assert job.stop() == 0
    finally:
        consumer.close()


@pytest.mark.full
def test_labels_of_every_kind_are_counted(tmp_path: Path, kafka: Broker) -> None:
    scene = comparison_scene(tmp_path, kafka, labels={"wait": "10m", "early": "1s"})
    events = Events.make(400)
    later = Events.make(50, start=START + 3 * HOUR + 12 * MINUTE, seed=2, span=MINUTE)
    labels = scene.pipeline.labels
    assert labels is not None
    with Job(scene, "--metrics-port", "0") as job:
        scene.compare(events, errors=dict.fromkeys(range(10), "out of memory"))
        scene.label(events.ids[:200], events.labels[:200].tolist())
        scene.label(events.ids[:30], events.labels[:30].tolist())  # twice
        scene.label([f"nobody-{number}" for number in range(25)], [True] * 25)
        scene.write(labels.topic, [(b"k", b"junk"), (None, None), (b"k", b'{"event": "x"}')])
        scene.write(scene.pipeline.comparison.topic, [(b"k", b"junk")])
        scene.compare(events.part(100, 120))  # twice
        job.wait_for_results(events=400, errors=10, labelled=200, repeated_labels=30, duplicates=20)
        scene.compare(later)  # 10 minutes after the end of the windows before: they close
        job.wait_for(lambda: sum(row["final"] for row in scene.results()) == 3, "done with three windows")
        scene.label([events.ids[399]], [True])
        rows = job.wait_for_results(late_labels=1, labelled=200)
        job.wait_for(lambda: job.left_out("unknown_labels") >= 25, "rid of unknown labels")
        assert job.left_out("undecodable") == 1
        assert job.left_out("bad_labels") == 3
        assert f" of {labels.topic}/" in job.log
        assert f"`millstream tail PIPELINE --topic {labels.topic} --from-beginning` prints labels" in job.log
        assert job.stop() == 0
    assert sum(row["error_rate"] * row["events"] for row in rows) == pytest.approx(10)


def test_start_tells_the_shadows_and_the_primarys_alias(tmp_path: Path, kafka: Broker) -> None:
    (tmp_path / "models" / "delay").mkdir(parents=True)
    sections: dict[str, Any] = {
        "model": {"name": "delay", "version": "latest"},
        "shadows": [{"version": 2}, {"version": 3, "name": "forest"}],
    }
    scene = comparison_scene(tmp_path, kafka, **sections)
    with Job(scene) as job:
        said = "comparing the primary delay version `latest` with the shadows delay version 2, delay version 3\n"
        job.wait_for(lambda: said in job.log, "started", 30)


@pytest.mark.full
def test_killed_in_a_window_it_counts_every_event_once(tmp_path: Path, kafka: Broker) -> None:
    scene, events = comparison_scene(tmp_path, kafka), Events.make(6000)
    step = 1000
    for number in range(6):
        with Job(scene) as job:
            part = events.part(step * number, step * (number + 1))
            scene.compare(part)
            scene.label(part.ids, part.labels.tolist())
            # At another moment each time: while it restores, joins, writes and commits.
            time.sleep(2.0 + 1.1 * number)
            job.kill()
    with Job(scene) as job:
        rows = job.wait_for_results(events=6000, labelled=6000, duplicates=0, repeated_labels=0)
        for row in rows:
            check(row, events)


@pytest.mark.full
def test_second_process_takes_its_part_and_gives_it_back(tmp_path: Path, kafka: Broker) -> None:
    scene, events = comparison_scene(tmp_path, kafka), Events.make(4000)
    with Job(scene) as first:
        scene.compare(events.part(0, 1000))
        scene.label(events.ids[:2000], events.labels[:2000].tolist())
        first.wait_for_results(events=1000, labelled=1000)
        with Job(scene, "--metrics-port", "0") as second:
            second.wait_for(lambda: second.metric("millstream_comparison_update_seconds") > 0, "at work")
            scene.compare(events.part(1000, 2000))
            first.wait_for_results(events=2000, labelled=2000, duplicates=0)
            scene.compare(events.part(2000, 3000))
            assert second.stop() == 0
        scene.compare(events.part(3000, 4000))
        scene.label(events.ids[2000:], events.labels[2000:].tolist())
        rows = first.wait_for_results(events=4000, labelled=4000, duplicates=0, repeated_labels=0)
        for row in rows:
            check(row, events)


@pytest.mark.full
def test_broker_that_is_away_is_one_clear_line(tmp_path: Path, kafka: Broker) -> None:
    scene = comparison_scene(tmp_path, kafka)
    text = scene.file.read_text().replace(kafka.bootstrap, "127.0.0.1:9")
    scene.file.write_text(text)
    with Job(scene) as job:
        assert job.wait() == 1
        [line] = job.log.splitlines()
        assert line.startswith("no Kafka broker answers at 127.0.0.1:9 ")
