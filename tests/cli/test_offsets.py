"""`millstream offsets`: shows a group's offsets, and sets them while the group has no members."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.load import vector_events
from millstream.consumers.cli import main as cli
from millstream.topics.embedded import EmbeddedBroker
from tests.consumers.processes import Worker
from tests.consumers.service import id_of, vector_service
from tests.pipeline.pipeline_files import SMALL

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker
    from tests.consumers.service import Service

FIRST = 1_777_637_400_000  # 2026-05-01T12:10Z, of the first record; each comes a minute after the one before
COUNTS = {0: 10, 2: 30}  # events by partition
BY_TIME = {0: 5, 1: 0, 2: 5, 3: 0}  # offset of the first record from 12:15 on
TIME = "2026-05-01T12:14:30"


def predicted_service(folder: Path, kafka: Broker, *, worker: bool = True, delivery: str = "at_least_once") -> Service:
    """A pipeline with events in two partitions, which a worker has predicted."""
    service = vector_service(folder, kafka, delivery=delivery)
    events = vector_events(40, seed=31).values
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for partition, values in ((0, events[:10]), (2, events[10:])):
        for minute, value in enumerate(values):
            producer.produce(service.inputs[0], value, partition=partition, timestamp=FIRST + minute * 60_000)
    assert producer.flush(30) == 0
    if worker:
        with Worker(service.file, "--until-idle") as running:
            assert running.wait(120) == 0
    return service


def rows_of(service: Service, capsys: pytest.CaptureFixture[str], *options: str) -> list[list[str]]:
    """The cells of each partition behind its number."""
    assert cli.run(["offsets", str(service.file), *options]) == 0
    title, _, *rows = capsys.readouterr().out.splitlines()
    assert title.split() == ["group", service.group]
    assert [row.split()[:2] for row in rows] == [[service.inputs[0], str(number)] for number in range(4)]
    return [row.strip().split(maxsplit=7)[2:] for row in rows]


@pytest.mark.durable
def test_offsets_are_shown_with_the_time_of_the_next_record(
    kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = predicted_service(tmp_path, kafka, worker=False)
    with closing(Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": service.group})) as consumer:
        consumer.commit(offsets=[TopicPartition(service.inputs[0], 2, 10)], asynchronous=False)
    assert rows_of(service, capsys) == [
        ["0", "-", "10", "2026-05-01T12:10:00Z"],
        ["0", "-", "0", "-"],
        ["0", "10", "30", "2026-05-01T12:20:00Z"],
        ["0", "-", "0", "-"],
    ]


@pytest.mark.durable
def test_without_execute_the_new_offsets_are_only_shown(
    kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = predicted_service(tmp_path, kafka)
    before = service.committed()
    assert [row[4:] for row in rows_of(service, capsys, "--to", TIME)] == [
        ["5", "5 read again"],
        ["0", "-"],
        ["5", "25 read again"],
        ["0", "-"],
    ]
    assert cli.run(["offsets", str(service.file), "--to", "earliest"]) == 0
    said = capsys.readouterr()
    assert "30 read again" in said.out
    assert said.err == "nothing is changed: stop all workers, and add --execute to set these offsets\n"
    assert service.committed() == before == {(service.inputs[0], number): count for number, count in COUNTS.items()}


@pytest.mark.durable
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_worker_predicts_again_exactly_what_came_since_the_time(kafka: Broker, tmp_path: Path, delivery: str) -> None:
    service = predicted_service(tmp_path, kafka, delivery=delivery)
    before = {id_of(message) for message in service.predictions()}
    assert len(before) == 40
    assert cli.run(["offsets", str(service.file), "--to", TIME, "--execute"]) == 0
    assert service.committed() == {(service.inputs[0], number): offset for number, offset in BY_TIME.items()}
    with Worker(service.file, "--until-idle") as worker:
        assert worker.wait(120) == 0
    written = Counter(id_of(message) for message in service.predictions())
    once = {f"event-{number:010d}" for number in (*range(5), *range(10, 15))}
    assert {event for event, count in written.items() if count == 1} == once
    assert {event for event, count in written.items() if count == 2} == before - once


@pytest.mark.durable
def test_offsets_are_set_to_the_ends_of_partitions_and_of_named_ones_alone(
    kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = predicted_service(tmp_path, kafka, worker=False)
    [topic] = service.inputs
    command = ["offsets", str(service.file), "--execute", "--to"]
    assert cli.run([*command, "latest", "--partition", f"{topic}/0", "--partition", f"{topic}/2-3"]) == 0
    said = capsys.readouterr()
    assert service.committed() == {(topic, 0): 10, (topic, 2): 30, (topic, 3): 0}
    assert [row.split(maxsplit=7)[7].strip() for row in said.out.splitlines()[2:]] == [
        "10 left out",
        "30 left out",
        "-",
    ]
    assert "the workers go on there when you start them" in said.err
    assert cli.run([*command, "2026-05-01T13:00"]) == 0  # later than the last record
    assert service.committed() == {(topic, 0): 10, (topic, 1): 0, (topic, 2): 30, (topic, 3): 0}
    assert cli.run([*command, "earliest"]) == 0
    assert set(service.committed().values()) == {0}


@pytest.mark.durable
def test_group_past_the_end_goes_on_where_the_partition_ends(
    kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = predicted_service(tmp_path, kafka, worker=False)
    [topic] = service.inputs
    with closing(Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": service.group})) as consumer:
        consumer.commit(offsets=[TopicPartition(topic, 0, 90)], asynchronous=False)
    assert cli.run(["check", str(service.file)]) == 1
    [advised] = re.findall(r"`millstream (offsets .*? --to earliest)`", capsys.readouterr().err)
    assert shlex.split(advised) == ["offsets", str(service.file), "--partition", f"{topic}/0", "--to", "earliest"]
    assert cli.run(shlex.split(advised)) == 0
    assert "10 read again" in capsys.readouterr().out
    assert cli.run([*shlex.split(advised), "--execute"]) == 0
    assert service.committed() == {(topic, 0): 0}


@pytest.mark.durable
def test_offsets_of_a_group_with_a_worker_are_not_set(
    kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = predicted_service(tmp_path, kafka, worker=False)
    with Worker(service.file) as worker:
        worker.wait_ready()
        service.wait_committed()
        before = service.committed()
        assert cli.run(["offsets", str(service.file), "--to", "earliest", "--execute"]) == 1
    said = capsys.readouterr().err
    assert f"group {service.group} has members, so its offsets can't be set: millstream-{service.group} at " in said
    assert "Stop all workers" in said
    assert service.committed() == before


@pytest.mark.durable
def test_missing_topic_is_told(kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    service = vector_service(tmp_path, kafka, with_topics=False)
    assert cli.run(["offsets", str(service.file), "--to", "earliest", "--execute"]) == 1
    assert f"millstream topics create {service.file}" in capsys.readouterr().err


@pytest.mark.durable
def test_partition_that_is_not_there_is_told(kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    service = vector_service(tmp_path, kafka)
    assert cli.run(["offsets", str(service.file), "--partition", f"{service.inputs[0]}/2-4"]) == 1
    assert f"expected one of {service.inputs[0]}/0-3, which the pipeline reads" in capsys.readouterr().err


def test_embedded_broker_shows_offsets_but_does_not_set_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pipeline.yaml"
    with EmbeddedBroker(["events"]) as broker:
        file.write_text(SMALL.replace("127.0.0.1:9092", broker.bootstrap))
        assert cli.run(["offsets", str(file), "--to", "earliest"]) == 0
        assert cli.run(["offsets", str(file), "--to", "earliest", "--execute"]) == 1
    assert "is the embedded broker" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--execute"], "--execute: expected --to"),
        (["--to", "2999-01-01"], "--to 2999-01-01T00:00:00Z: this is in the future"),
        (["--to", "soon"], "found 'soon'"),
        (["--partition", "events"], "expected TOPIC/NUMBER or TOPIC/FIRST-LAST, found 'events'"),
        (["--partition", "events/3-1"], "expected TOPIC/NUMBER or TOPIC/FIRST-LAST, found 'events/3-1'"),
    ],
)
def test_wrong_use_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], told: str) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.run(["offsets", str(tmp_path), *options])
    assert ended.value.code == 2
    assert told in capsys.readouterr().err
