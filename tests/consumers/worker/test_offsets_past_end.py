"""A group whose offsets lie past the ends of partitions that hold events: nobody may pass by the events that come up to there."""

from __future__ import annotations

import json
import re
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.load import vector_events
from millstream.consumers.cli import main as cli
from millstream.consumers.errors import NEEDS_CHANGE
from tests.broker.clients import produce, wait_until
from tests.consumers.processes import Worker
from tests.consumers.service import vector_service

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker
    from tests.consumers.service import Service

pytestmark = pytest.mark.durable
EVENTS = 40
BEYOND = 60  # offsets


class Run(Worker):
    """`millstream run`, which starts workers."""

    command = "run"


def service_past_its_ends(folder: Path, kafka: Broker, delivery: str = "at_least_once") -> Service:
    """A pipeline that has predicted all events in partitions 0 and 2, and whose offsets were set too high there."""
    service = vector_service(folder, kafka, delivery=delivery)
    load = vector_events(EVENTS, seed=31)
    records = list(zip(load.keys, load.values, strict=True))
    produce(kafka.bootstrap, service.inputs[0], records[:10], partition=0)
    produce(kafka.bootstrap, service.inputs[0], records[10:], partition=2)
    with Worker(service.file, "--until-idle") as worker:
        assert worker.wait(120) == 0
    with closing(Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": service.group})) as consumer:
        ends = service.input_ends()
        assert set(ends.values()) == {10, 30}
        places = [TopicPartition(*place, end + BEYOND) for place, end in ends.items()]
        consumer.commit(offsets=places, asynchronous=False)
    return service


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_worker_ends_with_what_to_do_and_is_not_restarted(kafka: Broker, tmp_path: Path, delivery: str) -> None:
    service = service_past_its_ends(tmp_path, kafka, delivery)
    before = service.committed()
    with Run(service.file, "--workers", "1") as run:
        assert run.wait(120) == NEEDS_CHANGE
    [topic] = service.inputs
    # The client may not know the end of the other partition yet.
    assert re.search(
        rf"is at offset (70 of {topic}/0, but the partition ends at 10|90 of {topic}/2, .* at 30)", run.log
    )
    named = f"--partition {topic}/"
    assert re.search(rf"millstream offsets {service.file} {named}(0|2|0 {named}2) --to earliest", run.log)
    assert "it is past the partition's end" in run.log
    assert "totals: 40 events read, 0 predicted, 40 not finished (of 1 worker)" in run.log
    assert "Only those from the group's offset on are read again" in run.log
    assert "are read again" not in run.log.replace("Only those from the group's offset on are read again", "")
    assert "Traceback" not in run.log
    assert service.committed() == before
    assert len(service.predictions()) == EVENTS


def service_past_empty_partitions(folder: Path, kafka: Broker, delivery: str) -> Service:
    """A pipeline whose topic is empty, and whose offsets are 20."""
    service = vector_service(folder, kafka, delivery=delivery)
    with closing(Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": service.group})) as consumer:
        places = [TopicPartition(service.inputs[0], number, 20) for number in range(4)]
        consumer.commit(offsets=places, asynchronous=False)
    return service


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_worker_is_not_idle_past_the_end_of_an_empty_topic(kafka: Broker, tmp_path: Path, delivery: str) -> None:
    service = service_past_empty_partitions(tmp_path, kafka, delivery)
    with Worker(service.file, "--until-idle") as worker:
        assert worker.wait(120) == NEEDS_CHANGE
        assert "but the partition ends at 0" in worker.log


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_events_that_fill_the_gap_under_a_worker_are_not_passed_by(
    kafka: Broker, tmp_path: Path, delivery: str
) -> None:
    service = service_past_empty_partitions(tmp_path, kafka, delivery)
    load = vector_events(EVENTS, seed=32)
    with Run(service.file, "--workers", "1") as run:
        wait_until(lambda: run.log.count("does not have offset 20") == 4, 60, "the client to go back")
        told = f"not ready: group {service.group} is at an offset past the end of {service.inputs[0]}/0-3"
        wait_until(lambda: told in run.get("/ready")[1], 60, "the worker to say why it is not ready")
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 500})  # all at once, in one batch
        for value in load.values:
            producer.produce(service.inputs[0], value, partition=1)
        producer.flush()
        assert run.wait(120) == NEEDS_CHANGE
        assert "but the partition ends at 0" in run.log
    assert set(service.committed().values()) == {20}
    assert service.predictions() == []


def test_lag_and_check_say_so(kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    service = service_past_its_ends(tmp_path, kafka)
    [topic] = service.inputs
    assert cli.run(["lag", str(service.file)]) == 0
    _, _, *rows, _, warning = capsys.readouterr().out.splitlines()
    assert [row.split()[1:] for row in rows] == [
        ["0", "70", "10", "past", "end", "-"],
        ["1", "-", "0", "0", "0.0"],
        ["2", "90", "30", "past", "end", "-"],
        ["3", "-", "0", "0", "0.0"],
    ]
    assert warning.startswith(f"warning: the group's offset is past the end of {topic}/0, {topic}/2, so a worker ends")
    assert cli.run(["lag", str(service.file), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [entry["past_end"] for entry in found["partitions"]] == [BEYOND, 0, BEYOND, 0]
    assert cli.run(["check", str(service.file)]) == 1
    said = capsys.readouterr().err
    assert f"is at offset 70 of {topic}/0, but the partition ends at 10. The same holds for {topic}/2" in said
    assert said.count("\n") == 1
