"""`millstream lag`: the numbers of a group, counted by hand beside it, before and after a worker."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.load import vector_events
from consumers.cli import main as cli
from tests.broker.clients import produce
from tests.consumers.processes import Worker
from tests.consumers.service import vector_service

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker
    from tests.consumers.service import Service

COUNTS = {0: 30, 1: 20, 3: 5}  # events by partition


def lag_of(service: Service, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert cli.run(["lag", str(service.file), "--json"]) == 0
    [line] = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert isinstance(found, dict)
    return found


@pytest.mark.durable
def test_lag_is_what_was_sent_and_then_nothing(
    kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = vector_service(tmp_path, kafka)
    load = vector_events(55, seed=31)
    for partition, count in COUNTS.items():
        produce(
            kafka.bootstrap, service.inputs[0], [(b"k", value) for value in load.values[:count]], partition=partition
        )

    before = lag_of(service, capsys)
    assert (before["group"], before["messages"]) == (service.group, 55)
    assert {entry["partition"]: entry["messages"] for entry in before["partitions"]} == {2: 0, **COUNTS}
    assert all((entry["seconds"] > 0) == (entry["messages"] > 0) for entry in before["partitions"])
    assert all(entry["seconds"] < 60 for entry in before["partitions"])
    assert {entry["committed"] for entry in before["partitions"]} == {None}

    with Worker(service.file, "--until-idle") as worker:
        assert worker.wait() == 0

    after = lag_of(service, capsys)
    assert after["messages"] == 0
    assert {entry["partition"]: entry["committed"] for entry in after["partitions"]} == {2: None, **COUNTS}
    assert {entry["seconds"] for entry in after["partitions"]} == {0}


@pytest.mark.durable
def test_table_has_a_row_for_each_partition_and_the_sum(
    kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = vector_service(tmp_path, kafka)
    produce(kafka.bootstrap, service.inputs[0], [(None, b"v")] * 7, partition=1)
    assert cli.run(["lag", str(service.file)]) == 0
    title, heading, *rows, footer = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert title == ["group", service.group]
    assert heading == ["topic", "partition", "committed", "end", "lag", "lag", "seconds"]
    assert [row[:5] for row in rows] == [
        [service.inputs[0], str(number), "-", *(["7", "7"] if number == 1 else ["0", "0"])] for number in range(4)
    ]
    assert footer[:2] == ["all", "7"]


@pytest.mark.durable
def test_missing_topic_is_told(kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    service = vector_service(tmp_path, kafka, with_topics=False)
    assert cli.run(["lag", str(service.file)]) == 1
    said = capsys.readouterr().err
    assert service.inputs[0] in said
    assert "Traceback" not in said
