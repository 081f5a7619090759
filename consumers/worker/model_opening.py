"""Loads models with the settings of the pipeline file."""

from functools import partial

from millstream.inference.combined.combination import OpenModel
from millstream.inference.executors.choice import open_executor
from millstream.pipeline.pipeline import Pipeline


def open_settings(pipeline: Pipeline, models: int, beside: object = None) -> OpenModel:
    """Returns what loads a model.

    Args:
        pipeline: the pipeline file's settings.
        models: how many share the GPU memory of a copy.
        beside: an executor of the version that is served now; None: there is none.
    """
    settings = pipeline.model
    share = settings.instances * models
    return partial(
        open_executor,
        trust=settings.trust,
        device=settings.device,
        threads=settings.threads,
        max_events=pipeline.batch.max_events,
        gpu_memory=None if settings.gpu_memory is None else settings.gpu_memory // share,
        engine_cache=settings.engine_cache,
        beside=beside,
    )
