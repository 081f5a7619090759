"""Sets the committed offsets of a group without members."""

from collections.abc import Mapping
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition

from millstream.topics.admin import ANSWER_TIMEOUT, Admin, is_embedded
from millstream.topics.coordinator import UNREADY_ADVICE, UNREADY_ERRORS
from millstream.topics.errors import GroupTakenError, TopicError
from millstream.topics.lag import Place
from millstream.topics.records import asked_again

_OTHER_KIND = "A group of another kind has this name. Give the pipeline a group of its own: `group: NAME` in its file"
_ADVICE = {
    KafkaError._INVALID_ARG: _OTHER_KIND,  # the client's word for groups such as those of Kafka Connect
    KafkaError.GROUP_ID_NOT_FOUND: _OTHER_KIND,  # the broker's word for a share group
    KafkaError.GROUP_AUTHORIZATION_FAILED: "Grant READ on the group to the user of `kafka.client`",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "Grant READ on the topics to the user of `kafka.client`",
    KafkaError.UNKNOWN_MEMBER_ID: "A worker has just joined the group. Stop all workers, and give the same command again",
    **dict.fromkeys(UNREADY_ERRORS, f"The group's coordinator isn't ready: try again. {UNREADY_ADVICE}"),
}


def set_offsets(client: Mapping[str, Any], group: str, offsets: Mapping[Place, int]) -> None:
    """Commit these offsets for the group, without metadata: the crash markers of workers are gone.

    Args:
        client: settings of a Kafka client.
        group: the group. It need not exist.
        offsets: topic and partition -> offset of the next record that the group reads.

    Raises:
        BrokerUnreachableError: no broker answers.
        GroupTakenError: the group has members.
        TopicError: the broker refuses, or is the embedded one.
    """
    admin = Admin(client)
    if is_embedded(admin):
        raise TopicError(
            f"{admin.bootstrap} is the embedded broker, which doesn't say whether the group has members, so its offsets can't be "
            "set. Use a real broker (`millstream broker` with Java 17 and Maven)."
        )
    try:
        asked_again(lambda: _set(admin, group, offsets), UNREADY_ERRORS)
    except KafkaException as error:
        error.__traceback__ = None  # see `millstream.topics.group.refuse_foreign_group`
        cause = error.args[0]
        said, advice = cause.str().removesuffix("."), _ADVICE.get(cause.code(), "Look into the broker's log")
        raise TopicError(f"the offsets of group {group} can't be set: {said}. {advice}.") from None


def _set(admin: Admin, group: str, offsets: Mapping[Place, int]) -> None:
    """As `set_offsets`. Raises KafkaException: also if the group is not one of consumers."""
    described = admin.describe_consumer_groups([group], request_timeout=ANSWER_TIMEOUT)[group].result()
    if described.members:
        members = sorted({f"{member.client_id} at {member.host}" for member in described.members})
        raise GroupTakenError(
            f"group {group} has members, so its offsets can't be set: {', '.join(members)}. Stop all workers, and give the same "
            "command again. A worker that was killed stays a member until its session is over: 6 s by default."
        )
    places = [TopicPartition(*place, offset) for place, offset in offsets.items()]
    asked = admin.alter_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group, places)], request_timeout=ANSWER_TIMEOUT
    )
    for place in asked[group].result().topic_partitions:
        if place.error is not None:
            raise KafkaException(place.error)
