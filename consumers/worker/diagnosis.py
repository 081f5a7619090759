"""Finds all that is wrong with a pipeline's schemas, models and mapping. `make_plan` ends at the first problem."""

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
from millstream.consumers.worker.plan import load_primary
from millstream.inference.combined.version import CombinedVersion
from millstream.inference.repository import ModelVersion
from millstream.pipeline.pipeline import Pipeline
from millstream.schemas.store import Schema, SchemaStore


def diagnose(pipeline: Pipeline, problems: Problems) -> None:
    """Note the problems of all parts. What can't be checked because another part is wrong is left out."""
    found: tuple[SchemaStore, Schema | None] | None = None
    with problems:
        store = open_store(pipeline)
        found = store, schema_of(pipeline, store, "input")
    models = _models(pipeline, None if found is None else found[1], problems)
    if found is None:
        return
    store, reader = found
    paths = Problems()
    with paths:
        check_event_fields(pipeline, reader)
    with paths:
        check_model_fields(models, reader)
    for message in paths.messages:
        problems.add(message)
    if not paths.messages:  # otherwise the decoder would report the same paths again
        _check_types(pipeline, store, reader, models, problems)


def _models(pipeline: Pipeline, reader: Schema | None, problems: Problems) -> list[ModelVersion]:
    """The models whose config.yaml can be read; all of them are also checked against their files."""
    models: list[ModelVersion] = []
    repository = PipelineModels(pipeline)
    with problems:
        models.append(load_primary(repository, reader))
    for shadow in pipeline.shadows:
        with problems:
            models.append(repository.shadow(shadow).with_time_formats(partial(time_format, reader)))
    open_model = open_settings(pipeline, len(models))
    for model in models:
        with problems:
            if isinstance(model, CombinedVersion):
                open_several(model, open_model).close()
            else:
                open_model(model).close()
    if len(models) == 1 + len(pipeline.shadows):
        with problems:
            check_compared_output(pipeline, models)
    return models


def _check_types(
    pipeline: Pipeline, store: SchemaStore, reader: Schema | None, models: list[ModelVersion], problems: Problems
) -> None:
    with problems:
        paths = PathTypes(pipeline, reader, models)
        with problems:
            paths.include()
        decoder = paths.open_decoder(store)
        of_lookups = None
        with problems:
            of_lookups = columns_of_lookups(open_lookups(pipeline, models))
        with problems:
            check_columns(pipeline, reader, models, decoder.columns, of_lookups)
        checked_decoder(pipeline, decoder, paths.types)
