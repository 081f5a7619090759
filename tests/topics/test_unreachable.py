"""Messages about a broker that does not answer."""

import socket
from contextlib import closing

import pytest
from confluent_kafka import KafkaError

from millstream.topics import lag, records
from millstream.topics.errors import BrokerUnreachableError
from millstream.topics.lag import LagReader
from millstream.topics.records import RecordReader, RecordWriter
from millstream.topics.unreachable import unreachable

NOWHERE = {"bootstrap.servers": "nohost.invalid:9092", "log_level": 0}


@pytest.mark.parametrize(
    "hosts", ["nohost.invalid:9092", "nohost.invalid:1, other.invalid:2", "SSL://nohost.invalid:1"]
)
def test_host_without_an_address_is_told_also_if_the_client_does_not_say_so(hosts: str) -> None:
    said = str(unreachable(hosts, KafkaError(KafkaError._TRANSPORT)))
    assert said.startswith(f"the host's name is not known: {hosts} (")
    assert said.endswith(
        "Correct the host's name in `kafka.bootstrap` of the pipeline file, or in the environment variable that it takes."
    )


@pytest.mark.parametrize(
    "hosts", ["127.0.0.1:1", "nohost.invalid:1,localhost:2", "[::1]:9092", "localhost", "[::1]", "localhost:99999"]
)
def test_host_with_an_address_does_not_answer(hosts: str) -> None:
    assert str(unreachable(hosts, KafkaError(KafkaError._TRANSPORT))).startswith(
        f"no Kafka broker answers at {hosts} ("
    )


def test_refused_connection_has_the_advice_to_start_a_broker_and_none_on_the_user_and_tls() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as no_broker:
        taken = f"127.0.0.1:{no_broker.getsockname()[1]}"
        transport = KafkaError(KafkaError._TRANSPORT)
        assert "check the user and TLS settings" in str(unreachable(taken, transport))
        assert "check the user and TLS settings" in str(unreachable(f"127.0.0.1:1,{taken}", transport))
        said = str(unreachable("127.0.0.1:1, localhost:1", transport))
        denied = str(unreachable("127.0.0.1:1", transport, [KafkaError(KafkaError._AUTHENTICATION)]))
    assert said.endswith(
        " Nothing listens there. Start a broker (`millstream broker`), or correct `kafka.bootstrap` in the pipeline file, or the "
        "environment variable that it takes."
    )
    assert denied.endswith("Correct the user, the password or the mechanism under `kafka.client` in the pipeline file.")


def test_each_client_tells_that_a_host_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (records, lag):
        monkeypatch.setattr(module, "ANSWER_TIMEOUT", 0.2)
    told = "the host's name is not known: nohost.invalid:9092"
    with pytest.raises(BrokerUnreachableError, match=told):
        RecordReader(NOWHERE, ["t"], from_beginning=True)
    with pytest.raises(BrokerUnreachableError, match=told):
        RecordWriter(NOWHERE, "t")
    reader = LagReader(NOWHERE, "g", ["t"])
    with pytest.raises(BrokerUnreachableError, match=told):
        reader.read()
    reader.close()
