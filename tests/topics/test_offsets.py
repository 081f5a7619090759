"""A group whose offsets can't be set."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import ShareConsumer

from millstream.topics.errors import TopicError
from millstream.topics.offsets import set_offsets
from tests.broker.clients import committed, produce, wait_until

if TYPE_CHECKING:
    from tests.broker.choice import Broker
    from tests.conftest import MakeTopic


@pytest.mark.durable
def test_group_of_another_kind_is_told(kafka: Broker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    client, group = {"bootstrap.servers": kafka.bootstrap}, f"share-{topic}"

    def joined() -> bool:
        produce(kafka.bootstrap, topic, [(None, b"v")])
        return bool(sharing.poll(0.1))

    with closing(ShareConsumer({**client, "group.id": group, "log_level": 0})) as sharing:
        sharing.subscribe([topic])
        wait_until(joined, 30, "the share group")
        with pytest.raises(TopicError, match=rf"group {group} can't be set: .*A group of another kind has this name"):
            set_offsets(client, group, {(topic, 0): 0})


@pytest.mark.durable
def test_partition_that_is_gone_is_told(kafka: Broker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    client, group = {"bootstrap.servers": kafka.bootstrap}, f"group-{topic}"
    with pytest.raises(TopicError, match="Unknown topic or partition"):
        set_offsets(client, group, {(topic, 0): 0, (topic, 9): 0})
    set_offsets(client, group, {(topic, 1): 0})
    assert committed(kafka.bootstrap, group, topic)[1] == 0
