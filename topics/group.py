"""The consumer group as the broker has it: who else is in it."""

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaException

from millstream.pipeline.pipeline import Pipeline
from millstream.topics.admin import ANSWER_TIMEOUT, connect
from millstream.topics.errors import GroupTakenError

_OWN_PREFIX = "millstream-"


def client_id(pipeline: Pipeline) -> str:
    """What the workers' consumers call themselves, where the pipeline file sets no `client.id`."""
    return f"{_OWN_PREFIX}{pipeline.name}"


def refuse_foreign_group(client: Mapping[str, Any], pipeline: Pipeline, group: str) -> None:
    """Refuse a group that serves another pipeline or program: both would take partitions from each other, and lose events.

    Costs one request. What can't be asked (no permission, an old broker, the embedded one) is not refused.

    Raises:
        GroupTakenError: naming one of the members, and what it reads or works for.
    """
    admin = connect(client)  # answers come only while it lives
    try:
        asked = admin.describe_consumer_groups([group], request_timeout=ANSWER_TIMEOUT)
        members = asked[group].result().members
    except KafkaException as error:
        # The answer holds its error, which holds this frame: the client would live on, and where a group's coordinator comes back
        # after the request has timed out, librdkafka (2.16) answers it a second time and ends the process.
        error.__traceback__ = None
        return
    same = [member for member in members if member.client_id == client_id(pipeline)]
    # A pipeline whose inputs change is rolled out beside workers that read what it no longer does, and some of what it does.
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
    """Refuse members that read topics which are no input."""
    for member in members:
        foreign = sorted(_topics(member) - set(pipeline.input.topics))
        if foreign:
            what = f"reads {', '.join(foreign)}, which is no input of {pipeline.path.name}"
            raise _taken(member, what, pipeline=pipeline, group=group)


def _topics(member: Any) -> set[str]:
    """What it has partitions of; nothing while the group rebalances."""
    return {place.topic for place in member.assignment.topic_partitions} if member.assignment else set()


def _taken(member: Any, what: str, *, pipeline: Pipeline, group: str) -> GroupTakenError:
    return GroupTakenError(
        f"group {group} is in use by something else: its member {member.client_id} at {member.host} {what}. Stop that, or give "
        f"the pipeline a group of its own: write `group: NAME` into {pipeline.path.name}."
    )
