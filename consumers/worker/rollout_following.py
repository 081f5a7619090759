"""Connects a worker with the rollout of its pipeline: the control topic, the versions, and what routes the events."""

import logging
from dataclasses import dataclass
from functools import partial

from millstream.consumers.control.reader import ControlReader
from millstream.consumers.control.topic import open_reader, require_control_topic, require_known
from millstream.consumers.errors import PlanError
from millstream.consumers.execute.interface import Pool
from millstream.consumers.models.pipeline_models import with_version
from millstream.consumers.observability.health import Health
from millstream.consumers.record_types import Key, Position
from millstream.consumers.resilience.retry import Retry
from millstream.consumers.rollout.record import RolloutRecord
from millstream.consumers.schema_store import open_store
from millstream.consumers.serving.held_versions import HeldVersions
from millstream.consumers.serving.rollout_watch import RolloutWatch
from millstream.consumers.serving.wanted_now import Target, wanted_now
from millstream.consumers.worker.following import Following, loads_with_less_priority
from millstream.consumers.worker.live import live
from millstream.consumers.worker.plan import Plan, check_outputs
from millstream.consumers.worker.shared import Shared
from millstream.consumers.worker.version_loader import VersionLoader, primary_of
from millstream.consumers.worker.worker import Stage
from millstream.inference.errors import ModelRejected
from millstream.inference.executors.opened import OpenedModel
from millstream.inference.sources.interface import Wanted
from millstream.pipeline.pipeline import Pipeline
from millstream.schemas.dead_letters import LetterModel
from millstream.schemas.ids import place_id
from millstream.schemas.routing_keys import routing_key
from millstream.topics.admin import Admin

log = logging.getLogger(__name__)

ADVICE = "Name another version in the rollout"
"""What to do about a version that is refused."""
START_WAIT = 60.0  # seconds that a worker waits at its start for the versions of the rollout


@dataclass(frozen=True, slots=True)
class Control:
    """The rollout at a worker's start."""

    reader: ControlReader  # has read the control topic to its end
    own: Wanted  # the version of the pipeline file


def read_rollout(pipeline: Pipeline, admin: Admin, retry: Retry) -> Control:
    """Read the control topic to its end. The worker goes on with the reader.

    Args:
        pipeline: with a rollout.
        admin: of the cluster.
        retry: waits while the schema registry is away.

    Raises:
        ControlTopicError: the topic doesn't exist or is unfit, or nobody can tell what the state of the rollout is.
        BrokerUnreachableError: no broker answers.
    """
    require_control_topic(admin, pipeline)
    reader = open_reader(pipeline, open_store(pipeline), say=log.warning)
    try:
        retry.call("schemas", reader.read_to_end)
        require_known(reader, pipeline)
    except BaseException:
        reader.close()
        raise
    return Control(reader, pipeline.wanted_version)


def with_baseline(pipeline: Pipeline, record: RolloutRecord | None) -> Pipeline:
    """The pipeline with the version that is the record's baseline. None: as it is."""
    if record is None:
        return pipeline
    baseline = record.variants[record.baseline]
    if baseline.model != pipeline.model.name:
        raise PlanError(
            f"{pipeline.at('model', 'name')}: expected {baseline.model}, because the pipeline's rollout is of this model, found "
            f"{pipeline.model.name}. Name another topic in `rollout.topic`, or start the rollout anew."
        )
    if baseline.version != pipeline.wanted_version:
        log.info(
            "revision %d of rollout %s names version %d as the one that answers, in place of the pipeline file",
            record.revision,
            record.rollout,
            baseline.version,
        )
    return with_version(pipeline, baseline.version)


def follow_rollout(
    plan: Plan, shared: Shared, control: Control, health: Health, first: OpenedModel, pool: Pool
) -> Following:
    """What follows the rollout in a worker.

    Args:
        plan: the pipeline, with its baseline.
        shared: what the stages share.
        control: the rollout.
        health: is told that the worker lives while it loads versions.
        first: the baseline.
        pool: runs the versions.
    """
    pipeline, metrics = plan.pipeline, shared.metrics
    assert pipeline.rollout is not None
    answered = check_outputs(plan.model, plan.executor)
    sample = None if isinstance(answered, ModelRejected) else answered
    loader = VersionLoader(plan, primary_of(plan), sample, advice=ADVICE, may_reject_blank=sample is None)
    model = pipeline.model

    def find(version: int) -> Target:
        return wanted_now(lambda: plan.models.source, model.name, version, pipeline.at("model"))

    watch = RolloutWatch(
        pool,
        control.reader,
        HeldVersions(loader.first(first), find, loader, metrics),
        own=control.own if isinstance(control.own, int) else plan.model.version,
        override_fields=pipeline.rollout.override_fields,
        sample=sample,
        stop=shared.ending.abandon,
        metrics=metrics,
    )
    watch.start()

    def prepare() -> None:
        health.waiting_for = "the versions of the rollout"
        with live(health):
            watch.wait_until_loaded(START_WAIT, shared.ending.stopping)

    def version_of(key: Key, place: Position) -> LetterModel | None:
        if key is None and pipeline.input.event_id is not None:
            return None  # the ID is in the event, which can't be decoded any more
        return watch.version_of(routing_key(key, place_id(*place)))

    stages: list[Stage] = [
        ("models", partial(watch.run, nice=loads_with_less_priority(plan))),
        ("rollout", watch.follow),
    ]
    return Following(stages, watch.close, prepare, version_of)
