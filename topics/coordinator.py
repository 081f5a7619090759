"""The group's coordinator: the broker that knows a group's members and committed offsets."""

from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from millstream.topics.client_log import client_log
from millstream.topics.quick_connect import QUICK_CONNECT

ANSWER_TIMEOUT: Final = 3.0  # seconds
UNREADY_ERRORS: Final = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
}
"""Errors of a broker that has just started or taken over a group, or that can't read its part of `__consumer_offsets`."""
UNREADY_ADVICE: Final = (
    "Look into the broker's log. If the log reports a failed coordinator, or a problem with `__consumer_offsets`, repair that or "
    "restart the broker"
)


def coordinator_error(client: Mapping[str, Any], group: str, topic: str) -> str | None:
    """Ask the coordinator for a committed offset. Returns its error in the client's words; None: it answers.

    It needs a connection of its own: a broker answers the requests of a connection one after the other. A member's request to
    join waits for the other members, and its later requests to the coordinator wait behind that.

    Args:
        client: settings of a Kafka client.
        group: the group.
        topic: any that the group reads.
    """
    consumer = Consumer(
        {**QUICK_CONNECT, **client, "group.id": group, "enable.auto.commit": False}, logger=client_log("coordinator")
    )
    try:
        consumer.committed([TopicPartition(topic, 0)], timeout=ANSWER_TIMEOUT)
    except KafkaException as error:
        return str(error.args[0].str())
    finally:
        consumer.close()
    return None
