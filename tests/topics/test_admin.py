from __future__ import annotations

import os
import signal
import threading
import uuid
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from millstream.pipeline.loading import load_pipeline
from millstream.pipeline.pipeline import Pipeline
from millstream.topics import admin
from millstream.topics.errors import BrokerUnreachableError, TopicError
from millstream.topics.local.ports import free_ports
from tests.broker.clients import create_topic, produce
from tests.consumers.service import vector_service
from tests.pipeline.pipeline_files import SMALL, load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

    from tests.broker.choice import Broker
    from tests.conftest import MakeTopic


def pipeline_without_topics(folder: Path, kafka: Broker) -> Pipeline:
    return load_pipeline(vector_service(folder, kafka, with_topics=False).file, os.environ)


def largest_record(kafka: Broker, topic: str) -> int:
    asked = ConfigResource(ResourceType.TOPIC, topic)
    client = AdminClient({"bootstrap.servers": kafka.bootstrap})  # it must outlive its answer
    found = client.describe_configs([asked])[asked].result(10)
    return int(found["max.message.bytes"].value)


@pytest.mark.durable
def test_all_topics_are_made_with_the_same_partitions(kafka: Broker, tmp_path: Path) -> None:
    pipeline = pipeline_without_topics(tmp_path, kafka)
    client = admin.Admin(pipeline.client_config())
    names = [name for _, name in admin.roles(pipeline)]
    assert [state.partitions for state in admin.states(client, admin.roles(pipeline))] == [None] * 3
    assert admin.create(client, pipeline, partitions=2) == names
    found = admin.states(client, admin.roles(pipeline))
    assert [(state.role, state.name, state.partitions, state.replication_factor) for state in found] == [
        (role, name, 2, 1) for role, name in admin.roles(pipeline)
    ]
    assert admin.create(client, pipeline, partitions=5) == []
    admin.require(client, pipeline)


@pytest.mark.durable
def test_missing_topics_are_named_with_what_to_do(kafka: Broker, tmp_path: Path) -> None:
    pipeline = pipeline_without_topics(tmp_path, kafka)
    create_topic(kafka.bootstrap, pipeline.input.topics[0], 1, {})
    with pytest.raises(TopicError) as raised:
        admin.require(admin.Admin(pipeline.client_config()), pipeline)
    said = str(raised.value)
    assert f"{pipeline.output.topic} (output)" in said
    assert pipeline.input.topics[0] not in said
    assert said.endswith(f"Create them: millstream topics create {pipeline.path}")


@pytest.mark.durable
def test_topic_of_others_that_is_missing_may_be_there_under_another_name(kafka: Broker, tmp_path: Path) -> None:
    pipeline = pipeline_without_topics(tmp_path, kafka)
    near = f"{pipeline.input.topics[0]}s"
    create_topic(kafka.bootstrap, near, 1, {})
    with pytest.raises(TopicError, match=rf"\(dead letters\). Did you mean `{near}`\? Create them: "):
        admin.require(admin.Admin(pipeline.client_config()), pipeline)


@pytest.mark.durable
def test_command_that_makes_missing_topics_names_the_file_as_it_was_named(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = vector_service(tmp_path, kafka, with_topics=False).file
    file.rename(tmp_path / "my pipeline.yaml")
    monkeypatch.chdir(tmp_path.parent)
    pipeline = load_pipeline(Path(tmp_path.name, "my pipeline.yaml"), os.environ)
    with pytest.raises(TopicError, match=f"millstream topics create '{tmp_path.name}/my pipeline.yaml'$"):
        admin.require(admin.Admin(pipeline.client_config()), pipeline)


@pytest.mark.durable
@pytest.mark.parametrize("limit", [None, 3_000_000])
def test_dead_letter_topic_has_room_for_the_largest_event_and_its_key_once_more(
    kafka: Broker, tmp_path: Path, limit: int | None
) -> None:
    pipeline = pipeline_without_topics(tmp_path, kafka)
    if limit is not None:
        create_topic(kafka.bootstrap, pipeline.input.topics[0], 1, {"max.message.bytes": str(limit)})
    admin.create(admin.Admin(pipeline.client_config()), pipeline, partitions=1)
    room = largest_record(kafka, pipeline.input.topics[0])
    assert room == limit or limit is None
    assert largest_record(kafka, pipeline.dead_letters.topic) >= 2 * room + 10_000


@pytest.mark.durable
def test_topic_that_the_broker_refuses_is_told_with_the_reason(kafka: Broker, tmp_path: Path) -> None:
    pipeline = pipeline_without_topics(tmp_path, kafka)
    with pytest.raises(TopicError, match=r"topic .*-events-0 could not be created: .*[Rr]eplication"):
        admin.create(admin.Admin(pipeline.client_config()), pipeline, replication=3)


class RefusingAdmin:
    """As Admin, of a hosted Kafka that refuses `segment.bytes`, or all new topics."""

    bootstrap = "127.0.0.1:1"

    def __init__(self, code: int, *, all_topics: bool = False) -> None:
        self._code = code
        self._all_topics = all_topics
        self.created: dict[str, dict[str, str]] = {}  # name -> settings

    def list_topics(self, **_: object) -> SimpleNamespace:
        return SimpleNamespace(topics=dict.fromkeys(self.created), cluster_id="hosted")

    def create_topics(self, asked: Sequence[NewTopic], **_: object) -> dict[str, Future[None]]:
        return {topic.topic: self._answer(topic) for topic in asked}

    def _answer(self, topic: NewTopic) -> Future[None]:
        answer, settings = Future[None](), dict(topic.config or {})
        if "segment.bytes" in settings:
            answer.set_exception(KafkaException(KafkaError(self._code, "segment.bytes is not allowed")))
        elif self._all_topics:
            answer.set_exception(KafkaException(KafkaError(self._code, "names begin with team-")))
        else:
            self.created[topic.topic] = settings
            answer.set_result(None)
        return answer


@pytest.mark.parametrize("code", [KafkaError.POLICY_VIOLATION, KafkaError.INVALID_CONFIG])
def test_setting_that_a_hosted_broker_refuses_is_left_out_with_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    pipeline = load(tmp_path, f"{SMALL}rollout: {{strategy: manual}}\n")
    client = RefusingAdmin(code)
    made = admin.create(cast("admin.Admin", client), pipeline, partitions=3)
    assert pipeline.rollout is not None
    assert client.created[pipeline.rollout.evaluations] == {"cleanup.policy": "compact"}
    assert made == [name for _, name in admin.roles(pipeline)]
    assert sorted(client.created) == sorted(made)
    [line] = caplog.messages
    assert line.endswith("is created without segment.bytes, which the broker refuses: segment.bytes is not allowed")


def test_topic_that_a_policy_refuses_for_another_reason_is_not_said_to_be_created(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = cast("admin.Admin", RefusingAdmin(KafkaError.POLICY_VIOLATION, all_topics=True))
    settings = {"segment.bytes": "67108864"}
    with pytest.raises(TopicError, match="topic t could not be created: names begin with team-"):
        admin.ensure(client, {"t": settings}, partitions=1, replication=1)
    assert caplog.messages == []


def test_broker_that_is_away_is_told_with_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "ANSWER_TIMEOUT", 0.5)
    address = f"127.0.0.1:{free_ports(1)[0]}"
    said: list[str] = []
    client = admin.Admin({"bootstrap.servers": address, "log_level": 0}, said.append)
    with pytest.raises(BrokerUnreachableError, match=f"no Kafka broker answers at {address} .*kafka.bootstrap"):
        admin.states(client, [("input", "any")])
    [line] = said  # before the error
    assert line.startswith(
        f"Kafka at {address} does not answer; waiting for up to 0.5 s, Ctrl-C ends ({address}/bootstrap:"
    )


def test_error_of_the_client_while_a_broker_is_waited_for_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    client = admin.Admin({"bootstrap.servers": f"127.0.0.1:{free_ports(1)[0]}"})

    def broken(timeout: float) -> None:
        if timeout < admin.ANSWER_TIMEOUT:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        raise RuntimeError("the handle is closed")

    monkeypatch.setattr(client, "list_topics", broken)
    monkeypatch.setattr(admin, "QUIET_SECONDS", 0.0)
    with pytest.raises(RuntimeError, match="the handle is closed"):
        admin.states(client, [])


def test_ctrl_c_ends_the_wait_for_a_broker_at_once() -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    interrupt = threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT])
    client = admin.Admin({"bootstrap.servers": address}, lambda _waiting: interrupt.start())
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            admin.states(client, [])
        assert "topics" in [thread.name for thread in threading.enumerate()], "the client still waits"
    finally:
        signal.signal(signal.SIGINT, before)


def test_broker_that_answers_at_once_is_not_talked_of(kafka: Broker) -> None:
    said: list[str] = []
    admin.states(admin.Admin({"bootstrap.servers": kafka.bootstrap}, said.append), [("input", "any")])
    assert said == []


def test_existing_topics_are_seen(kafka: Broker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    produce(kafka.bootstrap, topic, [(None, b"v")])
    [state] = admin.states(admin.Admin({"bootstrap.servers": kafka.bootstrap}), [("input", topic)])
    assert (state.partitions, state.replication_factor) == (4, 1)


def test_wanted_topics_are_there_when_ensured_and_another_partition_count_is_refused(kafka: Broker) -> None:
    if not kafka.durable:
        pytest.skip("the mock makes no topics on request")
    client, name = admin.Admin({"bootstrap.servers": kafka.bootstrap}), f"wanted-{uuid.uuid4().hex[:8]}"
    for _ in range(2):
        admin.ensure(client, {name: {"cleanup.policy": "compact"}}, partitions=3, replication=1)
    assert [state.partitions for state in admin.states(client, [("own", name)])] == [3]
    with pytest.raises(TopicError, match=f"topic {name}: expected 2 partitions, found 3"):
        admin.ensure(client, {name: {}}, partitions=2, replication=1)


def test_host_that_does_not_resolve_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "ANSWER_TIMEOUT", 300.0)  # it is said at once
    said = (
        r"the host's name is not known: nohost\.invalid:9092 \(nohost\.invalid:9092.*resolve.*\)\. "
        r"Correct the host's name in `kafka\.bootstrap`"
    )
    with pytest.raises(BrokerUnreachableError, match=said):
        admin.states(admin.Admin({"bootstrap.servers": "nohost.invalid:9092", "log_level": 0}), [("input", "t")])


def test_user_whom_the_broker_refuses_is_told_so_and_no_secret(kafka: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "ANSWER_TIMEOUT", 2.0)
    client = {
        "bootstrap.servers": kafka.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "user",
        "sasl.password": "sesame",
        "log_level": 0,
    }
    with pytest.raises(BrokerUnreachableError, match="SASL") as refused:
        admin.states(admin.Admin(client), [("input", "t")])
    assert "sesame" not in str(refused.value)
