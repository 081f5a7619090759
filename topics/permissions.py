"""Finds permissions that the user of `kafka.client` lacks. Brokers with ACLs say what a user may do (KIP-430).

They don't say it of transactional IDs, so a producer tries one.
"""

import time
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]

from millstream.pipeline.pipeline import Pipeline
from millstream.topics.admin import ANSWER_TIMEOUT, ROLLOUT, Admin, is_embedded, roles
from millstream.topics.client_log import client_log
from millstream.topics.coordinator import UNREADY_ERRORS
from millstream.topics.errors import TopicError
from millstream.topics.partitions import PERMISSIONS

READ, WRITE = AclOperation.READ, AclOperation.WRITE
Needed = Mapping[str, Collection[AclOperation]]
"""Topics -> what is done with them."""
_OF_WORKERS: Final = {"input": READ, "output": WRITE, "dead letters": WRITE, "comparisons": WRITE, ROLLOUT: READ}
"""What a worker does with the topics of these roles."""
COORDINATOR_TIMEOUT: Final = 5.0  # seconds within which a cluster has a coordinator for its first group or transaction


def needed_by_worker(pipeline: Pipeline) -> Needed:
    """What a worker does with the pipeline's topics."""
    return {name: [_OF_WORKERS[role]] for role, name in roles(pipeline) if role in _OF_WORKERS}


def needed_by_replay(pipeline: Pipeline, output: str | None) -> Needed:
    """What a replay of past events does with topics. `output`: an existing topic for its predictions."""
    labels = () if pipeline.labels is None else (pipeline.labels.topic,)
    read = dict.fromkeys((*pipeline.input.topics, pipeline.output.topic, *labels), (READ,))
    return read if output is None else {**read, output: (WRITE,)}


def needed_by_letters_replay(pipeline: Pipeline) -> Needed:
    """What a replay of dead letters does with the pipeline's topics."""
    return {pipeline.dead_letters.topic: [READ, WRITE], **dict.fromkeys(pipeline.input.topics, (WRITE,))}


def require_permissions(
    admin: Admin, pipeline: Pipeline, needed: Needed, group: str | None = None, transactional_id: str | None = None
) -> None:
    """Check that the pipeline's user may do what is needed.

    If the broker doesn't know the question, or doesn't answer it, nothing is refused.

    Args:
        admin: asks the broker.
        pipeline: names the user.
        needed: on topics, which exist.
        group: the user must be able to read with it; None: no group is needed.
        transactional_id: the user must be able to write with it and with all that begin with the group's name. No other producer
            may have it, for this would fence it. None: no transaction is needed.

    Raises:
        TopicError: naming all that is missing, and what to do.
    """
    if is_embedded(admin):  # it has no users
        return
    lacking = [*_on_topics(admin, needed), *(() if group is None else _on_group(admin, group))]
    if transactional_id is not None and not _may_write_with(transactional_id, pipeline.client_config()):
        lacking.append(f"WRITE on the transactional IDs that begin with {pipeline.group_id}")
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


def _may_write_with(transactional_id: str, client: Mapping[str, object]) -> bool:
    """Whether the broker lets the user begin transactions with this ID. It writes nothing."""
    producer = Producer({**client, "transactional.id": transactional_id}, logger=client_log("permissions"))
    try:
        producer.init_transactions(COORDINATOR_TIMEOUT)
    except KafkaException as error:
        error.__traceback__ = None  # as above
        return bool(error.args[0].code() != KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    return True
