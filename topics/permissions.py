"""Finds permissions that the user of `kafka.client` lacks. Brokers with ACLs say what a user may do (KIP-430).

They don't say it of transactional IDs.
"""

import time
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]

from millstream.pipeline.pipeline import Pipeline
from millstream.topics.admin import ANSWER_TIMEOUT, ROLLOUT, Admin, is_embedded, roles
from millstream.topics.coordinator import UNREADY_ERRORS
from millstream.topics.errors import TopicError
from millstream.topics.partitions import PERMISSIONS

READ, WRITE = AclOperation.READ, AclOperation.WRITE
Needed = Mapping[str, Collection[AclOperation]]
"""Topics -> what is done with them."""
_OF_WORKERS: Final = {"input": READ, "output": WRITE, "dead letters": WRITE, "comparisons": WRITE, ROLLOUT: READ}
"""What a worker does with the topics of these roles."""
COORDINATOR_TIMEOUT: Final = 5.0  # seconds within which a cluster has a coordinator for its first group


def needed_by_worker(pipeline: Pipeline) -> Needed:
    """What a worker does with the pipeline's topics."""
    return {name: [_OF_WORKERS[role]] for role, name in roles(pipeline) if role in _OF_WORKERS}


def needed_by_letters_replay(pipeline: Pipeline) -> Needed:
    """What a replay of dead letters does with the pipeline's topics."""
    return {pipeline.dead_letters.topic: [READ, WRITE], **dict.fromkeys(pipeline.input.topics, (WRITE,))}


def require_permissions(admin: Admin, pipeline: Pipeline, needed: Needed, group: str | None = None) -> None:
    """Check that the pipeline's user may do what is needed with topics, which exist, and read with a group, if one is given.

    If the broker doesn't know the question, or doesn't answer it, nothing is refused.

    Raises:
        TopicError: naming all that is missing, and what to do.
    """
    if is_embedded(admin):  # it has no users
        return
    lacking = [*_on_topics(admin, needed), *(() if group is None else _on_group(admin, group))]
    if lacking:
        raise TopicError(
            f"the user of `kafka.client` in {pipeline.path.name} lacks permissions on {admin.bootstrap}: {', '.join(lacking)}. "
            f"Grant them ({PERMISSIONS})."
        )


def _on_topics(admin: Admin, needed: Needed) -> Iterator[str]:
    asked = admin.describe_topics(
        TopicCollection(list(needed)), include_authorized_operations=True, request_timeout=ANSWER_TIMEOUT
    )
    for name, answer in asked.items():
        try:
            allowed = answer.result().authorized_operations
        except KafkaException as error:
            error.__traceback__ = None  # see `millstream.topics.group.refuse_foreign_group`
            continue
        missing = [operation.name for operation in needed[name] if allowed and operation not in allowed]
        if missing:
            yield f"{' and '.join(missing)} on topic {name}"


def _on_group(admin: Admin, group: str) -> Iterator[str]:
    until = time.monotonic() + COORDINATOR_TIMEOUT
    error = _refused_with(admin, group)
    while error in UNREADY_ERRORS and time.monotonic() < until:  # the first group of a cluster
        time.sleep(0.1)
        error = _refused_with(admin, group)
    if error == KafkaError.GROUP_AUTHORIZATION_FAILED:
        yield f"READ on group {group}"


def _refused_with(admin: Admin, group: str) -> int | None:
    """The code of the error with which the broker would refuse to let the user read with the group; None: it would not."""
    asked = admin.describe_consumer_groups([group], include_authorized_operations=True, request_timeout=ANSWER_TIMEOUT)
    try:
        allowed = asked[group].result().authorized_operations
    except KafkaException as error:
        error.__traceback__ = None  # as above
        # READ includes DESCRIBE. Without DESCRIBE, the broker doesn't answer the question.
        code: int = error.args[0].code()
        return code
    return KafkaError.GROUP_AUTHORIZATION_FAILED if allowed and READ not in allowed else None
