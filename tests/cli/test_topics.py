"""`millstream topics`: make what is missing, and show what is there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from millstream.consumers.cli import main as cli
from millstream.consumers.cli import topics
from millstream.topics.admin import ROLLOUT, TopicState
from tests.broker.choice import Broker
from tests.broker.clients import create_topic
from tests.consumers.service import vector_service

if TYPE_CHECKING:
    from pathlib import Path


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
    assert rows_of(capsys.readouterr().out) == {
        topic: [role, "-", "-", "missing, or this user may not see it"] for topic, role in topics.items()
    }

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
@pytest.mark.parametrize("there", ["input", "output"])
def test_new_topics_get_the_partitions_of_the_input_topic_or_else_of_the_output_topic(
    kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str], there: str
) -> None:
    service = vector_service(tmp_path, kafka, with_topics=False)
    create_topic(kafka.bootstrap, service.inputs[0] if there == "input" else service.output, 6, {})
    assert cli.run(["topics", "create", str(service.file), "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["name"]: (row["partitions"], row["remark"]) for row in found} == {
        service.inputs[0]: (6, "" if there == "input" else "created"),
        service.output: (6, "" if there == "output" else "created"),
        service.letters: (6, "created"),
    }


def test_control_topic_is_meant_to_have_one_partition(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [TopicState(ROLLOUT, "control", 1, 1), TopicState("output", "out", 1, 1), TopicState("input", "in", 4, 1)]
    monkeypatch.setattr(topics, "create", lambda *_, **__: ["control", "out", "in"])
    monkeypatch.setattr(topics, "states", lambda *_: found)
    service = vector_service(tmp_path, Broker("127.0.0.1:1", durable=False, kind="mock"), with_topics=False)
    assert cli.run(["topics", "create", str(service.file), "--partitions", "4"]) == 0
    assert {topic: row[-1] for topic, row in rows_of(capsys.readouterr().out).items()} == {
        "control": "created",
        "out": "created, but not with 4 partitions: the broker chooses",
        "in": "created",
    }


def test_number_of_partitions_must_be_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.run(["topics", "create", str(tmp_path), "--partitions", "0"])
    assert ended.value.code == 2
    assert "expected a whole number of at least 1, found '0'" in capsys.readouterr().err
