"""Finds permissions that the user of `kafka.client` lacks. Brokers with ACLs say what a user may do (KIP-430).

They don't say it of transactional IDs. The topics of labels and evaluations are not looked at: the comparison job uses them, and
may be another user.
"""

from collections.abc import Iterator
from typing import Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]

from millstream.pipeline.pipeline import Pipeline
from millstream.topics.admin import ANSWER_TIMEOUT, ROLLOUT, Admin, is_embedded, roles
from millstream.topics.errors import TopicError
from millstream.topics.partitions import PERMISSIONS

_READ, _WRITE = AclOperation.READ, AclOperation.WRITE
_NEEDED: Final = {"input": _READ, "output": _WRITE, "dead letters": _WRITE, "comparisons": _WRITE, ROLLOUT: _READ}
"""What a worker does with the topics of these roles."""


def require_permissions(admin: Admin, pipeline: Pipeline) -> None:
    """Check that a worker may read and write the pipeline's topics, which exist, and read with its group.

    A broker that doesn't know the question refuses nothing.

    Raises:
        TopicError: naming all that is missing, and what to do.
    """
    if is_embedded(admin):  # it has no users
        return
    lacking = [*_on_topics(admin, pipeline), *_on_group(admin, pipeline.group_id)]
    if lacking:
        raise TopicError(
            f"the user of `kafka.client` in {pipeline.path.name} lacks permissions on {admin.bootstrap}: {', '.join(lacking)}. "
            f"Grant them ({PERMISSIONS})."
        )


def _on_topics(admin: Admin, pipeline: Pipeline) -> Iterator[str]:
    needed = {name: _NEEDED[role] for role, name in roles(pipeline) if role in _NEEDED}
    asked = admin.describe_topics(
        TopicCollection(list(needed)), include_authorized_operations=True, request_timeout=ANSWER_TIMEOUT
    )
    for name, answer in asked.items():
        try:
            allowed = answer.result().authorized_operations
        except KafkaException as error:
            error.__traceback__ = None  # see `millstream.topics.group.refuse_foreign_group`
            continue
        if allowed and needed[name] not in allowed:
            yield f"{needed[name].name} on topic {name}"


def _on_group(admin: Admin, group: str) -> Iterator[str]:
    asked = admin.describe_consumer_groups([group], include_authorized_operations=True, request_timeout=ANSWER_TIMEOUT)
    try:
        allowed = asked[group].result().authorized_operations
    except KafkaException as error:
        error.__traceback__ = None  # as above
        # READ includes DESCRIBE. Without DESCRIBE, the broker doesn't answer the question.
        is_missing = error.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    else:
        is_missing = bool(allowed) and _READ not in allowed
    if is_missing:
        yield f"READ on group {group}"
