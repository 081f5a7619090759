"""What is told about a topic without partitions."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError

from millstream.topics.errors import TopicError
from millstream.topics.partitions import partitions_of


class Answering(Consumer):
    """A client whose broker answers with this error, as one with ACLs does."""

    error: KafkaError | None = None

    def list_topics(self, topic: str, *_: Any, **_options: Any) -> Any:  # type: ignore[override]
        return SimpleNamespace(topics={topic: SimpleNamespace(error=self.error, partitions={1: None, 0: None})})


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, "Create it: millstream topics create PIPELINE"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "Grant DESCRIBE on it to the user of `kafka.client`"),
    ],
)
def test_advice_fits_why_there_are_no_partitions(code: int, advice: str) -> None:
    client = Answering({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0})
    assert partitions_of(client, "events", 1.0) == [0, 1]
    client.error = KafkaError(code, "the reason")
    with pytest.raises(TopicError) as raised:
        partitions_of(client, "events", 1.0)
    assert str(raised.value).startswith(f"topic events: the reason. {advice}")
    client.close()
