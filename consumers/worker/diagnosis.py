"""Finds all that is wrong with a pipeline's schemas, models and mapping. `make_plan` ends at the first problem."""

from contextlib import closing, suppress
from functools import partial

from millstream.consumers.decode.json_schema import checked_decoder
from millstream.consumers.decode.lookups import columns_of_lookups, open_lookups
from millstream.consumers.decode.named_fields import (
    check_columns,
    check_event_fields,
    check_model_fields,
    schema_of,
    time_format,
)
from millstream.consumers.decode.path_types import PathTypes
from millstream.consumers.models.pipeline_models import PipelineModels
from millstream.consumers.problems import Problems
from millstream.consumers.schema_store import open_store
from millstream.consumers.shadow.compared_output import check_compared_output
from millstream.consumers.worker.model_opening import open_settings, open_several
from millstream.consumers.worker.plan import load_primary, shadow_decoder
from millstream.inference.combined.version import CombinedVersion
from millstream.inference.errors import ExecutorUnavailable
from millstream.inference.executors.blocking import BlockingExecutor
from millstream.inference.executors.interface import ModelExecutor
from millstream.inference.repository import ModelVersion
from millstream.inference.signature import merged_paths
from millstream.pipeline.pipeline import Pipeline
from millstream.schemas.store import Schema, SchemaStore


def diagnose(pipeline: Pipeline, problems: Problems) -> None:
    """Note the problems of all parts. What can't be checked because another part is wrong is left out."""
    found: tuple[SchemaStore, Schema | None] | None = None
    with problems:
        store = open_store(pipeline)
        found = store, schema_of(pipeline, store, "input")
    primary, shadows = _models(pipeline, None if found is None else found[1], problems)
    if found is None:
        return
    store, reader = found
    paths = Problems()
    with paths:
        check_event_fields(pipeline, reader)
    with paths:
        check_model_fields([*primary, *shadows], reader)
    for message in paths.messages:
        problems.add(message)
    if not paths.messages:  # otherwise the decoder would report the same paths again
        _check_types(pipeline, store, reader, primary, shadows, problems)


def _models(
    pipeline: Pipeline, reader: Schema | None, problems: Problems
) -> tuple[list[ModelVersion], list[ModelVersion]]:
    """The primary and the shadows whose config.yaml can be read; all of them are also checked against their files."""
    primary: list[ModelVersion] = []
    shadows: list[ModelVersion] = []
    repository = PipelineModels(pipeline)
    with problems:
        primary.append(load_primary(repository, reader))
    for shadow in pipeline.shadows:
        with problems:
            shadows.append(repository.shadow(shadow).with_time_formats(partial(time_format, reader)))
    models = [*primary, *shadows]
    open_model = open_settings(pipeline, len(models))
    for model in models:
        with problems:
            _warm_up(open_several(model, open_model) if isinstance(model, CombinedVersion) else open_model(model))
    if len(models) == 1 + len(pipeline.shadows):
        with problems:
            check_compared_output(pipeline, models)
    return primary, shadows


def _warm_up(executor: ModelExecutor) -> None:
    """Run blank events, unless what the model needs is away. Raises ModelConfigError: its outputs are not as config.yaml says."""
    with closing(executor):
        if not isinstance(executor, BlockingExecutor):
            with suppress(ExecutorUnavailable):
                executor.warm_up()


def _check_types(
    pipeline: Pipeline,
    store: SchemaStore,
    reader: Schema | None,
    primary: list[ModelVersion],
    shadows: list[ModelVersion],
    problems: Problems,
) -> None:
    models = [*primary, *shadows]
    of_lookups = None
    with problems:
        paths = PathTypes(pipeline, reader, primary)
        paths.add_options(models)
        if primary:  # otherwise the types of the fields that it reads aren't known
            with problems:
                paths.include()
        decoder = paths.open_decoder(store)
        with problems:
            of_lookups = columns_of_lookups(open_lookups(pipeline, models))
        with problems:
            check_columns(pipeline, reader, primary, decoder.columns, of_lookups)
        checked_decoder(pipeline, decoder, paths.types | merged_paths([model.signature for model in models]))
    for model in shadows:
        with problems:
            shadow_decoder(pipeline, store, reader, model, of_lookups)
