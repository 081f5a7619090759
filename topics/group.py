"""The consumer group as the broker has it: who else is in it."""

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException

from topics.admin import ANSWER_TIMEOUT, connect
from topics.errors import GroupTakenError
from topics.pipeline import Pipeline


def refuse_foreign_group(client: Mapping[str, Any], pipeline: Pipeline) -> None:
    """Refuse a group whose members read other topics: they would take partitions from each other and commit side by side.

    What can't be asked (no permission, an old broker, the embedded one) is not refused.

    Raises:
        GroupTakenError: naming the topics and one of the members.
    """
    group = pipeline.group_id
    admin = connect(client)  # answers come only while it lives
    try:
        asked = admin.describe_consumer_groups([group], request_timeout=ANSWER_TIMEOUT)
        members = asked[group].result().members
    except KafkaException:
        return
    for member in members:
        assigned = member.assignment.topic_partitions if member.assignment else []
        foreign = sorted({place.topic for place in assigned} - set(pipeline.input.topics))
        if foreign:
            raise GroupTakenError(
                f"group {group} is in use by something else: its member {member.client_id} at {member.host} reads "
                f"{', '.join(foreign)}, which is no input of {pipeline.path.name}. Stop that, or give the pipeline a group of "
                f"its own: write `group: NAME` into {pipeline.path.name}."
            )
