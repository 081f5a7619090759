"""Opens a pipeline's schema store. It is a module of its own, for commands that load no model."""

from typing import Literal

from millstream.pipeline.pipeline import Pipeline
from millstream.pipeline.schema_sections import Registry
from millstream.schemas.directory import DirectoryStore
from millstream.schemas.records import (
    DEAD_LETTER,
    INCLUDING_PREDICTION,
    OWN_SCHEMAS_FOLDER,
    PREDICTION,
    ROLLOUT_DEAD_LETTER,
    ROLLOUT_PREDICTION,
    OwnRecord,
)
from millstream.schemas.store import SchemaStore


def open_store(pipeline: Pipeline) -> SchemaStore:
    """The store of the pipeline's schemas."""
    registry = pipeline.schemas.registry
    if registry is None:
        assert pipeline.schemas.directory is not None  # the pipeline file's check requires one of the two
        named = [section.schema_name for section in (pipeline.input, pipeline.labels) if section is not None]
        if not any(named):  # a pipeline of JSON without schemas needs no folder
            return DirectoryStore(OWN_SCHEMAS_FOLDER)
        return DirectoryStore(OWN_SCHEMAS_FOLDER, pipeline.schemas.directory)
    return _registry_store(registry)


def _registry_store(registry: Registry, kind: Literal["AVRO", "JSON"] = "AVRO") -> SchemaStore:
    from millstream.schemas.registry import RegistryStore  # noqa: PLC0415  (a folder of schemas needs no registry)

    password = registry.password.get_secret_value() if registry.password else None
    return RegistryStore(registry.url, username=registry.username, password=password, ca=registry.ca, kind=kind)


def open_json_schemas(pipeline: Pipeline) -> SchemaStore:
    """The store of JSON Schemas. There is a registry."""
    registry = pipeline.schemas.registry
    assert registry is not None  # the pipeline file's check requires it
    return _registry_store(registry, "JSON")


def prediction_record(pipeline: Pipeline) -> OwnRecord:
    """The Avro record of the pipeline's predictions."""
    if pipeline.rollout is not None:
        return ROLLOUT_PREDICTION
    return INCLUDING_PREDICTION if pipeline.includes_fields else PREDICTION


def dead_letter_record(pipeline: Pipeline) -> OwnRecord:
    """The Avro record of the pipeline's dead letters."""
    return DEAD_LETTER if pipeline.rollout is None else ROLLOUT_DEAD_LETTER


def own_schema_id(pipeline: Pipeline, store: SchemaStore, record: OwnRecord, topic: str) -> int:
    """The schema ID of one of Millstream's own records on `topic`: from the registry; with a folder, the reserved ID."""
    if pipeline.schemas.registry is None:
        return record.reserved_id
    return store.register(f"{topic}-value", record.definition)
