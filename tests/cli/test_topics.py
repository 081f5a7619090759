"""`millstream topics`: make what is missing, and show what is there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from millstream.consumers.cli import main as cli
from tests.broker.clients import create_topic
from tests.consumers.service import vector_service

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker


def rows_of(out: str) -> dict[str, list[str]]:
    """The table: topic -> role, partitions, replicas and remark."""
    rows = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in out.splitlines()[1:]]
    return {topic: [role, *rest] for role, topic, *rest in rows}


@pytest.mark.durable
def test_create_makes_what_is_missing_and_is_a_no_op_after_that(
    kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = vector_service(tmp_path, kafka, with_topics=False)
    topics = {service.inputs[0]: "input", service.output: "output", service.letters: "dead letters"}

    assert cli.run(["topics", "show", str(service.file)]) == 1
    assert rows_of(capsys.readouterr().out) == {topic: [role, "-", "-", "missing"] for topic, role in topics.items()}

    assert cli.run(["topics", "create", str(service.file), "--partitions", "3", "--replication-factor", "1"]) == 0
    assert rows_of(capsys.readouterr().out) == {topic: [role, "3", "1", "created"] for topic, role in topics.items()}

    assert cli.run(["topics", "create", str(service.file), "--partitions", "5"]) == 0
    told = "exists: not changed to 5 partitions"
    assert rows_of(capsys.readouterr().out) == {topic: [role, "3", "1", told] for topic, role in topics.items()}
    assert cli.run(["topics", "create", str(service.file), "--partitions", "3"]) == 0
    there = {topic: [role, "3", "1"] for topic, role in topics.items()}
    assert rows_of(capsys.readouterr().out) == there

    assert cli.run(["topics", "show", str(service.file)]) == 0
    assert rows_of(capsys.readouterr().out) == there


@pytest.mark.durable
def test_new_topics_get_the_partitions_of_the_input_topic(
    kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = vector_service(tmp_path, kafka, with_topics=False)
    create_topic(kafka.bootstrap, service.inputs[0], 6, {})
    assert cli.run(["topics", "create", str(service.file), "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["name"]: (row["partitions"], row["remark"]) for row in found} == {
        service.inputs[0]: (6, ""),
        service.output: (6, "created"),
        service.letters: (6, "created"),
    }


def test_number_of_partitions_must_be_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.run(["topics", "create", str(tmp_path), "--partitions", "0"])
    assert ended.value.code == 2
    assert "expected a whole number of at least 1, found '0'" in capsys.readouterr().err
