"""What users of a broker with ACLs need (docs/running.md), and what they are told where it is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclOperation,
    ResourceType,
)

from millstream.consumers.cli import main as cli
from millstream.consumers.control.errors import ControlTopicError
from millstream.consumers.control.reader import ControlReader
from millstream.consumers.control.transaction import KafkaTransaction
from millstream.topics import admin
from millstream.topics.errors import BrokerUnreachableError, TopicError
from millstream.topics.lag import LagReader
from millstream.topics.records import RecordReader, RecordWriter
from millstream.topics.since_reader import SinceReader
from tests.broker.choice import Broker
from tests.broker.clients import create_topic, produce, wait_until
from tests.broker.guarded import GuardedKafka, become_app, guarded_kafka
from tests.consumers.control.topic_in_memory import PIPELINE, decode
from tests.pipeline.pipeline_files import SMALL, load
from tests.producers.orders import echo_service

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.durable, pytest.mark.full]


@pytest.fixture(scope="module")
def guarded() -> Iterator[GuardedKafka]:
    with guarded_kafka() as broker:
        yield broker


@pytest.fixture
def topic(guarded: GuardedKafka, request: pytest.FixtureRequest) -> str:
    """With three records."""
    name = str(request.node.name)
    create_topic(guarded.bootstrap, name, 1, {})
    produce(guarded.bootstrap, name, [(None, b"1"), (None, b"2"), (None, b"3")])
    return name


def test_readers_need_no_permission_for_a_group(guarded: GuardedKafka, topic: str) -> None:
    guarded.grant(ResourceType.TOPIC, topic, AclOperation.READ)
    with RecordReader(guarded.client, [topic], from_beginning=True) as reader:
        found: list[Any] = []

        def all_came() -> bool:
            found.extend(reader.read(10, 0.5))
            return len(found) == 3

        wait_until(all_came, 30, "the records")
    since = SinceReader(guarded.client, {topic: 0})
    assert sum(len(fetched.offsets) for fetched in since.existing()) == 3
    since.close()


def test_reader_that_may_not_read_is_told_the_permission(guarded: GuardedKafka, topic: str) -> None:
    guarded.grant(ResourceType.TOPIC, topic, AclOperation.DESCRIBE)
    with RecordReader(guarded.client, [topic], from_beginning=True) as reader:

        def refused() -> bool:
            try:
                return bool(reader.read(10, 0.5))
            except TopicError as error:
                assert "authorization failed. Grant READ on it" in str(error)
                return True

        wait_until(refused, 30, "the refusal")


def test_reader_of_the_control_topic_that_may_not_read_is_told_the_permission(
    guarded: GuardedKafka, topic: str
) -> None:
    guarded.grant(ResourceType.TOPIC, topic, AclOperation.DESCRIBE)
    with (
        ControlReader(guarded.client, topic, PIPELINE, decode) as reader,
        pytest.raises(ControlTopicError, match=r"can't be read: .*[Aa]uthorization failed\. Grant READ on it"),
    ):
        reader.read_to_end()


def test_change_of_a_rollout_that_may_not_be_written_is_told_the_permission(guarded: GuardedKafka, topic: str) -> None:
    guarded.grant(ResourceType.TOPIC, topic, AclOperation.DESCRIBE)
    guarded.grant(ResourceType.TRANSACTIONAL_ID, f"{topic}-id", AclOperation.WRITE)
    with KafkaTransaction(guarded.client, topic, f"{topic}-id") as transaction:
        transaction.begin()
        with pytest.raises(ControlTopicError, match=r"[Aa]uthorization failed .*Grant WRITE and DESCRIBE on it"):
            transaction.commit([(b"key", b"value")], lambda: None)


def test_writer_that_may_not_write_is_told_the_permission(guarded: GuardedKafka, topic: str) -> None:
    guarded.grant(ResourceType.TOPIC, topic, AclOperation.DESCRIBE)
    writer = RecordWriter(guarded.client, topic)
    writer.write(b"4", None)
    with pytest.raises(TopicError, match=r"could not be written to topic .*[Aa]uthorization failed\. Grant WRITE"):
        writer.flush()


def test_lag_says_that_the_group_may_not_be_described(guarded: GuardedKafka, topic: str) -> None:
    guarded.grant(ResourceType.TOPIC, topic, AclOperation.READ)
    reader = LagReader(guarded.client, f"{topic}-group", [topic])
    with pytest.raises(
        BrokerUnreachableError, match=r"Group authorization failed\. Grant READ .* DESCRIBE on the group"
    ):
        reader.read()
    guarded.grant(ResourceType.GROUP, f"{topic}-group", AclOperation.DESCRIBE)
    reader = LagReader(guarded.client, f"{topic}-group", [topic])
    assert [one.messages for one in reader.read()] == [3]
    reader.close()


def test_topics_that_may_not_be_created_are_told_with_the_permission(guarded: GuardedKafka, tmp_path: Path) -> None:
    pipeline = load(tmp_path, SMALL)
    client = admin.Admin(guarded.client)
    with pytest.raises(TopicError, match=r"could not be created, .*: topic .*\. Grant CREATE on them") as told:
        admin.create(client, pipeline, partitions=1)
    assert all(name in str(told.value) for _, name in admin.roles(pipeline))


def test_topics_that_were_created_and_may_not_be_seen_are_told(
    guarded: GuardedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline = load(tmp_path, SMALL.replace("name: small", "name: unseen"))
    become_app(pipeline.path, guarded)
    for _, name in admin.roles(pipeline):
        guarded.grant(ResourceType.TOPIC, name, AclOperation.CREATE)
    monkeypatch.setattr(admin, "ANSWER_TIMEOUT", 2.0)
    assert cli.run(["topics", "create", str(pipeline.path), "--partitions", "1"]) == 1
    said = capsys.readouterr().out
    assert said.count("created, but this user may not see it: grant DESCRIBE on it") == 3


def test_replay_of_dead_letters_names_the_permissions_that_it_lacks(
    guarded: GuardedKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = echo_service(tmp_path, Broker(guarded.bootstrap, durable=True, kind="maven"))
    become_app(service.file, guarded)
    guarded.grant(ResourceType.TOPIC, service.letters, AclOperation.READ)
    guarded.grant(ResourceType.TOPIC, service.inputs[0], AclOperation.READ)

    def said() -> str:
        assert cli.run(["dead-letters", "replay", str(service.file), "--yes"]) in {0, 1}
        told = capsys.readouterr()
        return told.out + told.err

    assert f"WRITE on topic {service.letters}, WRITE on topic {service.inputs[0]}. Grant them" in said()
    guarded.grant(ResourceType.TOPIC, service.letters, AclOperation.WRITE)
    guarded.grant(ResourceType.TOPIC, service.inputs[0], AclOperation.WRITE)
    of_transaction = "Grant WRITE on the transactional ID `GROUP-dead-letters-replay`"
    wait_until(lambda: of_transaction in said(), 30, "only the transactional ID")
    guarded.grant(ResourceType.TRANSACTIONAL_ID, f"{service.group}-dead-letters-replay", AclOperation.WRITE)
    wait_until(lambda: said().startswith("0 replayed"), 30, "a replay of nothing")


def test_check_names_the_permissions_that_a_worker_lacks(
    guarded: GuardedKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = Broker(guarded.bootstrap, durable=True, kind="maven")
    service = echo_service(tmp_path, broker, delivery="exactly_once")
    become_app(service.file, guarded)
    outputs = service.output, service.letters
    needed = [(topic, AclOperation.READ) for topic in service.inputs] + [
        (topic, AclOperation.WRITE) for topic in outputs
    ]
    for topic, _ in needed:
        guarded.grant(ResourceType.TOPIC, topic, AclOperation.DESCRIBE)
        guarded.grant(ResourceType.TOPIC, topic, AclOperation.DESCRIBE_CONFIGS)

    def lacking() -> str:
        code, said = cli.run(["check", str(service.file)]), capsys.readouterr()
        assert code == bool(said.err)
        return said.err

    said = lacking()
    for topic, operation in needed:
        assert f"{operation.name} on topic {topic}" in said
        guarded.grant(ResourceType.TOPIC, topic, operation)
    wait_until(lambda: "on topic" not in lacking(), 30, "the permissions on topics")
    of_group, of_transactions = (
        f"READ on group {service.group}",
        f"WRITE on the transactional IDs that begin with {service.group}",
    )
    assert f"lacks permissions on 127.0.0.1:{guarded.guarded}: {of_group}, {of_transactions}. Grant them" in lacking()
    guarded.grant(ResourceType.GROUP, service.group, AclOperation.DESCRIBE)
    wait_until(lambda: of_group in lacking(), 30, "the permission to describe the group")
    guarded.grant(ResourceType.GROUP, service.group, AclOperation.READ)
    wait_until(lambda: of_group not in lacking(), 30, "the permission of the group")
    assert f": {of_transactions}. Grant them" in lacking()
    guarded.grant(ResourceType.TRANSACTIONAL_ID, service.group, AclOperation.WRITE, prefixed=True)
    wait_until(lambda: not lacking(), 30, "no complaint")


def test_replay_names_all_permissions_that_it_lacks(
    guarded: GuardedKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = echo_service(tmp_path, Broker(guarded.bootstrap, durable=True, kind="maven"))
    become_app(service.file, guarded)
    read = *service.inputs, service.output
    for topic in read:
        guarded.grant(ResourceType.TOPIC, topic, AclOperation.DESCRIBE)
    state, times = str(tmp_path / "state"), ["--from", "2026-01-01", "--to", "2026-01-02"]
    command = ["replay", str(service.file), "--model", "1", *times, "--state", state]

    def said() -> str:
        assert cli.run(command) == 1
        return capsys.readouterr().err

    told = said()
    assert all(f"READ on topic {topic}" in told for topic in read)
    assert f"READ on group {service.group}" in told
    for topic in read:
        guarded.grant(ResourceType.TOPIC, topic, AclOperation.READ)
    guarded.grant(ResourceType.GROUP, service.group, AclOperation.READ, prefixed=True)
    wait_until(lambda: "no event is in this range of time" in said(), 30, "a replay that may read")
