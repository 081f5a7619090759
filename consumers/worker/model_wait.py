"""A worker's start: waits for the models while their repository is away, and keeps `/live` at 200 while they load."""

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from millstream.consumers.models.pipeline_models import PipelineModels
from millstream.consumers.observability.health import Health
from millstream.consumers.observability.metrics import Metrics
from millstream.consumers.resilience.retry import Retry
from millstream.inference.errors import ModelConfigError
from millstream.pipeline.pipeline import Pipeline

WHAT = "models"
"""How the metrics name what is away."""
TURN_EVERY = 1.0  # seconds


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


@contextmanager
def live(health: Health, at_most: float = math.inf) -> Iterator[None]:
    """Tell the health that the worker is live: a large model may take minutes.

    Args:
        health: is told.
        at_most: after so many seconds it is told no more, as the call probably hangs. By default, the call is bounded by itself.
    """
    done, until = threading.Event(), time.monotonic() + at_most

    def turn() -> None:
        while not done.wait(TURN_EVERY) and time.monotonic() < until:
            health.turn()

    thread = threading.Thread(target=turn, name="start", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
