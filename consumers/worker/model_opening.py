"""Loads models with the settings of the pipeline file."""

from functools import partial

from millstream.inference.combined.version import CombinedVersion, OpenModel
from millstream.inference.errors import ModelConfigError
from millstream.inference.executors.blocking import BlockingExecutor
from millstream.inference.executors.choice import open_executor
from millstream.inference.executors.interface import ModelExecutor
from millstream.inference.repository import ModelVersion
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


def open_several(model: CombinedVersion, open_model: OpenModel) -> ModelExecutor:
    """Load the models. Raises ModelConfigError, DeviceError."""
    return model.several.open(partial(open_here, open_model))


def open_here(open_model: OpenModel, model: ModelVersion) -> ModelExecutor:
    """Load one of several models. Raises ModelConfigError, DeviceError."""
    executor = open_model(model)
    if isinstance(executor, BlockingExecutor):
        executor.close()
        raise ModelConfigError(
            f"{model.place}: the executor {model.executor} runs on a server, which `models` doesn't support. Give the model a "
            f"pipeline of its own with `model:`, or call the server in a Python model (`model.py`)."
        )
    return executor
