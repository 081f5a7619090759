"""A worker's start: fetches the models, and waits while their repository is away."""

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

from millstream.consumers.models.pipeline_models import PipelineModels
from millstream.consumers.observability.health import Health
from millstream.consumers.observability.metrics import Metrics
from millstream.consumers.resilience.retry import Retry
from millstream.consumers.worker.live import live
from millstream.inference.errors import ModelConfigError
from millstream.pipeline.pipeline import Pipeline

WHAT = "models"
"""How the metrics name what is away."""


def fetch_models(pipeline: Pipeline, health: Health, metrics: Metrics, *, dedicated: bool) -> PipelineModels:
    """Fetch the models of a worker. While their repository is away, and the cache lacks one, it waits, and the log says so.

    Meanwhile, the worker is live and not ready. A folder is away while its drive hangs or fails.

    Args:
        pipeline: the pipeline file's settings.
        health: gets the outage.
        metrics: where to count.
        dedicated: whether the worker is to run only the dedicated shadows.

    Raises:
        ModelConfigError: a model or a version isn't there, or the credentials are refused.
    """
    models = PipelineModels(pipeline)
    retry = Retry(threading.Event(), health, metrics)
    with live(health):
        for fetch in _fetches(models, dedicated=dedicated):
            retry.call(WHAT, fetch if models.source.remote else partial(_look, fetch))
    return models


def _fetches(models: PipelineModels, *, dedicated: bool) -> Iterator[Callable[[], object]]:
    """Calls that fetch each model."""
    pipeline = models.pipeline
    if pipeline.models is None:
        yield models.fetch_primary
    else:
        for place, named in pipeline.models.members.items():
            yield partial(models.fetch_member, named, place)
        tenants = pipeline.models.tenants
        if tenants is not None and tenants.default is None:
            yield partial(models.first_tenant, tenants.name)
    for shadow in pipeline.shadows:
        if shadow.dedicated is dedicated:
            yield partial(models.fetch_shadow, shadow)


def _look(fetch: Callable[[], object]) -> None:
    """Look whether a folder answers. Mistakes in it are left to `make_plan`, which says what to do about each."""
    with suppress(ModelConfigError):
        fetch()
