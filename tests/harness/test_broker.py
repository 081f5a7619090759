"""The brokers that the other tests stand on."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from millstream.consumers.cli.broker import FETCHING, STARTING
from millstream.consumers.supervision.child import MILLSTREAM
from millstream.topics.errors import BrokerError
from millstream.topics.local.ports import free_ports
from tests.broker.choice import Broker, choose
from tests.broker.clients import Row, committed, create_topic, produce, read_all, wait_until
from tests.broker.maven import CACHE, MavenKafka, missing_for_maven

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import MakeTopic


def test_rows_come_back_with_keys_headers_and_tombstones(kafka: Broker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    rows: list[Row] = [(b"k", b"v", [("h", b"1"), ("none", None)]), (b"k", None), (None, b"only a value")]
    produce(kafka.bootstrap, topic, rows, partition=2)

    read = read_all(kafka.bootstrap, topic)

    assert [(m.key(), m.value(), m.partition(), m.offset()) for m in read] == [
        (b"k", b"v", 2, 0),
        (b"k", None, 2, 1),
        (None, b"only a value", 2, 2),
    ]
    assert read[0].headers() == [("h", b"1"), ("none", None)]


def test_read_all_of_an_empty_topic_is_empty(kafka: Broker, make_topic: MakeTopic) -> None:
    assert read_all(kafka.bootstrap, make_topic()) == []


def test_read_all_says_how_many_came_when_some_are_missing(kafka: Broker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    produce(kafka.bootstrap, topic, [(None, b"one")])
    with pytest.raises(TimeoutError, match=r"Read 1 messages .* expected 2"):
        read_all(kafka.bootstrap, topic, count=2, timeout=1)


def test_committed_offsets_are_those_of_the_group(kafka: Broker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    group = f"group-of-{topic}"
    assert committed(kafka.bootstrap, group, topic) == {}
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(topic, 1, 7)], asynchronous=False)
    consumer.close()
    assert committed(kafka.bootstrap, group, topic) == {1: 7}


@pytest.mark.durable
def test_topics_have_the_partitions_and_settings_asked_for(kafka: Broker, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2, cleanup_policy="compact")
    produce(kafka.bootstrap, topic, [(b"k", b"v")], partition=1)
    assert [message.partition() for message in read_all(kafka.bootstrap, topic)] == [1]


@pytest.mark.durable
def test_read_committed_leaves_out_what_was_aborted(kafka: Broker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"aborted")
    producer.flush(30)
    producer.abort_transaction(30)
    producer.begin_transaction()
    producer.produce(topic, b"kept")
    producer.commit_transaction(30)

    assert [message.value() for message in read_all(kafka.bootstrap, topic, count=1)] == [b"kept"]
    both = read_all(kafka.bootstrap, topic, count=2, isolation="read_uncommitted")
    assert {message.value() for message in both} == {b"aborted", b"kept"}


@pytest.fixture(scope="module")
def own_kafka() -> Iterator[MavenKafka]:
    if (missing := missing_for_maven()) is not None:
        pytest.skip(f"no broker of its own: {missing}")
    with MavenKafka() as broker:
        yield broker


@pytest.mark.full
@pytest.mark.durable
@pytest.mark.broker
def test_data_outlives_a_restart_and_a_crash(own_kafka: MavenKafka) -> None:
    bootstrap = own_kafka.bootstrap
    create_topic(bootstrap, "kept", 1, {})
    produce(bootstrap, "kept", [(b"1", b"before the restart")])
    own_kafka.restart()
    produce(bootstrap, "kept", [(b"2", b"before the crash")])
    own_kafka.kill()
    own_kafka.start()
    assert own_kafka.bootstrap == bootstrap
    assert [message.key() for message in read_all(bootstrap, "kept", count=2)] == [b"1", b"2"]


@pytest.mark.full
@pytest.mark.durable
@pytest.mark.broker
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_broker_command_leaves_no_broker_behind(own_kafka: MavenKafka, tmp_path: Path, end: signal.Signals) -> None:
    del own_kafka  # it is here for the jars, and so that two brokers run side by side
    (port,) = free_ports(1)
    with _broker_command("--port", str(port), env={**os.environ, "TMPDIR": str(tmp_path)}) as command:
        assert _told_address(command) == f"127.0.0.1:{port}"
        create_topic(f"127.0.0.1:{port}", "t", 1, {})
        command.send_signal(end)
        status = command.wait(30)
    wait_until(lambda: not _listens(port), 10, "the broker to end with its command")
    if end == signal.SIGINT:
        assert status == 0
        assert list(tmp_path.iterdir()) == []


@pytest.mark.full
@pytest.mark.durable
@pytest.mark.broker
def test_broker_command_whose_kafka_dies_ends_and_says_so(own_kafka: MavenKafka, tmp_path: Path) -> None:
    del own_kafka  # it is here for the jars
    with _broker_command("--port", "0", "--data", str(tmp_path / "kept")) as command:
        bootstrap = _told_address(command)
        assert command.stdout is not None
        log = Path(command.stdout.readline().removeprefix("Its log: ").rstrip("\n"))
        assert log == tmp_path / "kept" / "broker.log"
        assert log.exists()
        (java,) = Path(f"/proc/{command.pid}/task/{command.pid}/children").read_text().split()
        os.kill(int(java), signal.SIGKILL)
        _, said = command.communicate(timeout=30)
        assert command.returncode == 1
    # Kafka had logged nothing, so the message has no end of its log.
    assert said == f"Apache Kafka on {bootstrap} has ended (signal 9). Start the broker again.\n"


def _broker_command(*options: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*MILLSTREAM, "broker", "--cache", str(CACHE), *options],
        cwd=Path(__file__).parents[2],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _told_address(command: subprocess.Popen[str]) -> str:
    """The address that `millstream broker` prints once Kafka answers."""
    assert command.stdout is not None
    assert command.stdout.readline() in {f"{STARTING}\n", f"{FETCHING}\n"}
    found = re.match(r"Apache Kafka [\d.]+ runs on (\S+)\. ", command.stdout.readline())
    assert found is not None
    return found[1]


@pytest.mark.durable
@pytest.mark.broker
@pytest.mark.full
def test_a_broker_that_cannot_start_shows_the_end_of_its_log() -> None:
    if (missing := missing_for_maven()) is not None:
        pytest.skip(f"no broker of its own: {missing}")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        broker = MavenKafka(port=taken.getsockname()[1])
        with pytest.raises(BrokerError, match=r"port \d+ is taken: another program listens there"):
            broker.start()


@pytest.mark.parametrize(
    ("environ", "kind"),
    [
        ({"KAFKA_BOOTSTRAP": "h:1"}, "external"),
        ({"KAFKA_BOOTSTRAP": "h:1", "MILLSTREAM_TEST_BROKER": "mock"}, "mock"),
        ({"MILLSTREAM_TEST_BROKER": "maven"}, "maven"),
        ({"MILLSTREAM_TEST_BROKER": "containers"}, "containers"),
    ],
)
def test_the_environment_chooses_the_broker(environ: dict[str, str], kind: str) -> None:
    assert choose(environ).kind == kind


@pytest.mark.parametrize("name", ["kafka", "external"])
def test_a_broker_kind_that_cannot_be_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"MILLSTREAM_TEST_BROKER: expected .* found '{name}'"):
        choose({"MILLSTREAM_TEST_BROKER": name})


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
