"""Waits for the models at a worker's start while their repository is away."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from millstream.consumers.models.pipeline_models import PipelineModels
from millstream.consumers.observability.health import Health
from millstream.consumers.observability.metrics import Metrics
from millstream.consumers.resilience.retry import Retry
from millstream.pipeline.pipeline import Pipeline

WHAT = "models"
"""How the metrics name what is away."""
TURN_EVERY = 1.0  # seconds


def fetch_models(pipeline: Pipeline, health: Health, metrics: Metrics, *, dedicated: bool) -> PipelineModels:
    """Fetch the models of a worker. While their repository is away, and the cache lacks one, it waits, and the log says so.

    Meanwhile, the worker is live and not ready.

    Args:
        pipeline: the pipeline file's settings.
        health: gets the outage.
        metrics: where to count.
        dedicated: whether the worker is to run only the dedicated shadows.

    Raises:
        ModelConfigError: a model or a version isn't there, or the credentials are refused.
    """
    models = PipelineModels(pipeline)
    if not models.source.remote:
        return models
    retry = Retry(threading.Event(), health, metrics)
    members = {} if pipeline.models is None else pipeline.models.members
    with live(health):
        for place, named in members.items():
            retry.call(WHAT, lambda named=named, place=place: models.fetch_member(named, place))  # type: ignore[misc]
        if not members:
            retry.call(WHAT, models.fetch_primary)
        for shadow in pipeline.shadows:
            if shadow.dedicated is dedicated:
                retry.call(WHAT, lambda each=shadow: models.fetch_shadow(each))  # type: ignore[misc]
    return models


@contextmanager
def live(health: Health) -> Iterator[None]:
    """Tell the health that the worker is live: a large model may take minutes, and each call is bounded by itself."""
    done = threading.Event()

    def turn() -> None:
        while not done.wait(TURN_EVERY):
            health.turn()

    thread = threading.Thread(target=turn, name="start", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
