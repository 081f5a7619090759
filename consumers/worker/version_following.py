"""Lets a worker follow the version of its model that the pipeline file names by `latest` or an alias."""

from functools import partial

from millstream.consumers.execute.interface import Pool
from millstream.consumers.serving import watch_thread
from millstream.consumers.serving.model_watch import ModelWatch
from millstream.consumers.serving.place import WholePool
from millstream.consumers.serving.wanted_now import wanted_now
from millstream.consumers.worker.following import Following, loads_with_less_priority
from millstream.consumers.worker.plan import Plan
from millstream.consumers.worker.shared import Shared
from millstream.consumers.worker.version_loader import VersionLoader, primary_of
from millstream.inference.executors.opened import OpenedModel


def follow_version(plan: Plan, shared: Shared, first: OpenedModel, pool: Pool) -> Following:
    """What follows the version in a worker.

    Args:
        plan: the pipeline, with one model.
        shared: what the stages share.
        first: the version at the start.
        pool: runs the versions.
    """
    pipeline, loader = plan.pipeline, VersionLoader(plan, primary_of(plan))
    model, stop = pipeline.model, shared.ending.abandon
    watch = ModelWatch(
        loader.first(first),
        WholePool(pool),
        partial(wanted_now, lambda: plan.models.source, model.name, pipeline.wanted_version, pipeline.at("model")),
        loader,
        stop=stop,
        metrics=shared.metrics,
    )
    run = partial(watch_thread.follow, [watch], model.poll_interval, stop, nice=loads_with_less_priority(plan))
    return Following([("models", run)], watch.close)
