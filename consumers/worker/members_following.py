"""Lets a worker follow the models of `models`: those that the pipeline file names by `latest` or an alias."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import cast

from millstream.consumers.execute.interface import Pool
from millstream.consumers.observability.metrics import SERVING_MODEL
from millstream.consumers.serving import watch_thread
from millstream.consumers.serving.combined_serving import CombinedServing
from millstream.consumers.serving.model_watch import ModelWatch
from millstream.consumers.serving.shared_series import SharedSeries
from millstream.consumers.serving.tenant_watch import TenantWatch
from millstream.consumers.serving.wanted_now import wanted_now
from millstream.consumers.serving.watch_thread import Watched
from millstream.consumers.worker.following import Following, loads_with_less_priority
from millstream.consumers.worker.plan import Plan, check_outputs, open_member_copies
from millstream.consumers.worker.shared import Shared
from millstream.consumers.worker.version_loader import LoadedModel, VersionLoader
from millstream.inference.combined.combination import Ensemble
from millstream.inference.combined.tenants import Tenants
from millstream.inference.combined.version import CombinedVersion, NamedMember
from millstream.inference.executors.interface import ModelExecutor
from millstream.inference.executors.opened import OpenedModel


def follow_members(plan: Plan, shared: Shared, first: OpenedModel, pool: Pool) -> Following:
    """What follows the versions of several models in a worker; one thread does it for all.

    Args:
        plan: the pipeline, with several models.
        shared: what the stages share.
        first: the models at the start.
        pool: runs the models.
    """
    several = cast("CombinedVersion", plan.model)
    serving, series = CombinedServing(pool, first), SharedSeries(shared.metrics)
    watches: dict[int, ModelWatch] = {}
    held: set[tuple[str, object]] = set()  # what the worker has fetched once, though two models may have it
    for number, named in enumerate(several.named):
        if isinstance(named.version, str):
            known = (named.name, named.version)
            watches[number] = _watch(plan, shared, serving, number, series, holds_files=known not in held)
            held.add(known)
        else:
            series.set(SERVING_MODEL, 1, *map(str, several.several.models[number].id))
    watched: list[Watched] = list(watches.values())
    if isinstance(several.several, Tenants) and isinstance(several.several.wanted, str):
        watched.append(TenantWatch(serving, shared.ending.abandon))
    if not watched:
        return Following((), serving.close)
    run = partial(
        watch_thread.follow,
        watched,
        plan.pipeline.model.poll_interval,
        shared.ending.abandon,
        nice=loads_with_less_priority(plan),
    )
    return Following([("models", run)], partial(_close, serving, watches))


def _close(serving: CombinedServing, watches: Mapping[int, ModelWatch]) -> None:
    for watch in watches.values():
        watch.close()
    serving.close(but=watches)


def _watch(
    plan: Plan, shared: Shared, serving: CombinedServing, number: int, series: SharedSeries, *, holds_files: bool
) -> ModelWatch:
    """Follows one model. `holds_files`: whether it releases the files of the first version."""
    several = cast("CombinedVersion", plan.model)
    named, model, opened = several.named[number], several.several.models[number], serving.members[number]
    is_predicted = not isinstance(several.several, Ensemble)
    place = plan.pipeline.at("models", *named.place)
    loader = VersionLoader(
        plan,
        LoadedModel(
            model,
            _folder(plan, named) if holds_files else None,
            partial(plan.models.read_member, named),
            partial(open_member_copies, plan.pipeline, several),
            is_predicted,
        ),
        # The other models, and the steps that it feeds, rely on the types and shapes.
        check_outputs(model, cast("ModelExecutor", opened.executors[0]), encode=is_predicted),
        compared_with=f"version {model.version}",
    )
    return ModelWatch(
        loader.first(opened),
        serving.place(number),
        partial(wanted_now, lambda: plan.models.source, named.name, named.version, place),
        loader,
        stop=shared.ending.abandon,
        metrics=series,
        counts_predictions=is_predicted,
    )


def _folder(plan: Plan, named: NamedMember) -> Path:
    """Of the version at the start, as it was fetched."""
    return plan.models.fetch_member(named, named.place).folder
