"""Checks that the control topic can keep a rollout's state, and opens it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.consumers.control.errors import ControlTopicError
from millstream.consumers.control.reader import ControlReader
from millstream.consumers.control.transaction import KafkaTransaction
from millstream.consumers.control.writer import ControlWriter, Reader
from millstream.consumers.rollout.record import RolloutDecoder
from millstream.consumers.schema_store import own_schema_id
from millstream.schemas.records import ROLLOUT
from millstream.topics.admin import Admin, cleanup_policy, is_embedded, states

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.pipeline.pipeline import Pipeline
    from millstream.pipeline.rollout_section import Rollout
    from millstream.schemas.store import SchemaStore


def require_control_topic(admin: Admin, pipeline: Pipeline) -> None:
    """Check that the control topic exists, is compacted and has one partition.

    Raises:
        BrokerUnreachableError: no broker answers.
        ControlTopicError: it isn't so; the message says what to do.
    """
    topic = topic_of(pipeline)
    [state] = states(admin, [("rollout", topic)])
    if state.partitions is None:
        raise ControlTopicError(
            f"topic {topic} (rollout) does not exist on {admin.bootstrap}, or may not be seen by this user. Create it: "
            "millstream topics create PIPELINE"
        )
    if state.partitions != 1 and not is_embedded(admin):  # only partition 0 is used there
        raise ControlTopicError(
            f"topic {topic} (rollout): expected 1 partition, found {state.partitions}: changes must have one order. Name another "
            "topic in `rollout.topic`, and create it: millstream topics create PIPELINE"
        )
    policy = cleanup_policy(admin, topic)
    if policy is not None and policy != "compact":
        raise ControlTopicError(
            f"topic {topic} (rollout): expected cleanup.policy=compact, found {policy}: the broker would delete the rollout's "
            f"state. Change it: kafka-configs.sh --bootstrap-server {admin.bootstrap} --alter --entity-type topics --entity-name "
            f"{topic} --add-config cleanup.policy=compact"
        )


def open_reader(
    pipeline: Pipeline, store: SchemaStore, say: Callable[[str], object] = lambda _text: None
) -> ControlReader:
    """A reader of the pipeline's control topic. Arguments as of `ControlReader`."""
    return ControlReader(pipeline.client_config(), topic_of(pipeline), pipeline.name, RolloutDecoder(store).decode, say)


def require_known(reader: ControlReader, pipeline: Pipeline) -> None:
    """Raise ControlTopicError if the topic, which was read to its end, doesn't tell the state of the rollout."""
    if reader.unknown:
        raise ControlTopicError(
            f"the state of the rollout of {pipeline.name} is unknown, so no version can be chosen: {reader.problem}. Write a "
            f"new state: millstream rollout start {pipeline.named}"
        )


def open_writer(pipeline: Pipeline, store: SchemaStore, reader: Reader) -> ControlWriter:
    """A writer to the pipeline's control topic. Raises SchemaUnavailable: the registry does not answer."""
    topic = topic_of(pipeline)
    return ControlWriter(
        reader,
        lambda: KafkaTransaction(pipeline.client_config(), topic, f"{pipeline.name}-rollout"),
        own_schema_id(pipeline, store, ROLLOUT, topic),
    )


def topic_of(pipeline: Pipeline) -> str:
    """The name of the control topic. Raises ControlTopicError: the pipeline has no rollout."""
    return rollout_of(pipeline).topic


def rollout_of(pipeline: Pipeline) -> Rollout:
    """The section `rollout` of the pipeline file. Raises ControlTopicError: there is none."""
    if pipeline.rollout is None:
        raise ControlTopicError(
            f"{pipeline.named}: expected the section `rollout:`, found none. Write for example `rollout: {{strategy: manual}}` "
            "(`millstream docs rollouts`)."
        )
    return pipeline.rollout
