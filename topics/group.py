"""Checks who else is in the consumer group."""

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaException

from millstream.pipeline.pipeline import Pipeline
from millstream.topics.admin import ANSWER_TIMEOUT, Admin
from millstream.topics.errors import GroupTakenError

_OWN_PREFIX = "millstream-"


def client_id(pipeline: Pipeline) -> str:
    """The `client.id` of the workers' consumers, if the pipeline file doesn't set one."""
    return f"{_OWN_PREFIX}{pipeline.name}"


def is_empty(client: Mapping[str, Any], group: str) -> bool:
    """Whether the group has no member. False also if the broker doesn't say (no permission, the embedded broker)."""
    admin = Admin(client)
    try:
        asked = admin.describe_consumer_groups([group], request_timeout=ANSWER_TIMEOUT)
        return not asked[group].result().members
    except KafkaException as error:
        error.__traceback__ = None  # see `refuse_foreign_group`
        return False


def refuse_foreign_group(client: Mapping[str, Any], pipeline: Pipeline, group: str) -> None:
    """Refuse a group that serves another pipeline or program: both would take partitions from each other, and lose events.

    It costs one request. If the request fails (no permission, an old broker, the embedded broker), nothing is refused.

    Raises:
        GroupTakenError: another pipeline or program is in the group.
    """
    # A client of its own, which must live until the response comes, and end if none comes: see below.
    admin = Admin(client)
    try:
        asked = admin.describe_consumer_groups([group], request_timeout=ANSWER_TIMEOUT)
        members = asked[group].result().members
    except KafkaException as error:
        # The response refers to the error, which refers to this frame, so the client would stay alive. If the group's coordinator
        # then comes back after the request has timed out, librdkafka (2.16) responds a second time and ends the process.
        error.__traceback__ = None
        return
    same = [member for member in members if member.client_id == client_id(pipeline)]
    # During a roll-out that changes the inputs, workers of the old version still read a topic that is no input any more.
    changed = any(_topics(member) & set(pipeline.input.topics) for member in same)
    _refuse_readers([member for member in members if not (changed and member in same)], pipeline, group)
    for member in members:
        if member.client_id.startswith(_OWN_PREFIX) and member not in same:
            raise _taken(
                member,
                f"works for the pipeline {member.client_id.removeprefix(_OWN_PREFIX)}",
                pipeline=pipeline,
                group=group,
            )


def _refuse_readers(members: Sequence[Any], pipeline: Pipeline, group: str) -> None:
    """Refuse members that read topics which are not inputs."""
    for member in members:
        foreign = sorted(_topics(member) - set(pipeline.input.topics))
        if foreign:
            what = f"reads {', '.join(foreign)}, which is no input of {pipeline.path.name}"
            raise _taken(member, what, pipeline=pipeline, group=group)


def _topics(member: Any) -> set[str]:
    """The topics of the member's partitions; none while the group rebalances."""
    return {place.topic for place in member.assignment.topic_partitions} if member.assignment else set()


def _taken(member: Any, what: str, *, pipeline: Pipeline, group: str) -> GroupTakenError:
    return GroupTakenError(
        f"group {group} is in use by something else: its member {member.client_id} at {member.host} {what}. Stop that, or give "
        f"the pipeline a group of its own: write `group: NAME` into {pipeline.path.name}."
    )
