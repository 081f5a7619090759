"""The partitions of a topic; or an error that says what to do."""

from confluent_kafka import Consumer, KafkaError, Producer

from millstream.topics.errors import TopicError

PERMISSIONS = "`millstream docs running#permissions`"
"""Where users find what they must grant."""


def partitions_of(client: Consumer | Producer, topic: str, timeout: float) -> list[int]:
    """The numbers of a topic's partitions, ascending. `timeout` is in seconds.

    Raises:
        TopicError: there is no such topic, or the user may not see it.
        KafkaException: no broker answers.
    """
    found = client.list_topics(topic, timeout=timeout).topics[topic]
    if found.error is None:
        return sorted(found.partitions)
    advice = "Create it: millstream topics create PIPELINE"
    if found.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        advice = f"Grant DESCRIBE on it to the user of `kafka.client`; READ and WRITE include it ({PERMISSIONS})"
    raise TopicError(f"topic {topic}: {found.error.str()}. {advice}")
