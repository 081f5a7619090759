"""The pipeline as a replay runs it: another version of the model, and nothing that depends on the present time."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.inference.repository import CONFIG_FILE
from millstream.pipeline.repository import without_version

if TYPE_CHECKING:
    from millstream.inference.repository import ModelVersion
    from millstream.pipeline.pipeline import Pipeline

COMMIT_EVERY = 2.0  # seconds between two checkpoints, each of which is a file


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be replayed."""

    version: int
    start: int  # ms since the epoch: events from this timestamp of their record on
    end: int  # ... and before this one
    output: str | None  # the topic for the predictions; None: they are only compared
    rate: float | None  # events per second; None: as fast as possible


def name_of(pipeline: Pipeline, request: Request) -> str:
    """A name for the replay's folder and group. The same replay has the same, whatever its rate is."""
    about = [pipeline.kafka.bootstrap, pipeline.name, *pipeline.input.topics, pipeline.model.name]
    about += [str(each) for each in (request.version, request.start, request.end, request.output)]
    digest = hashlib.blake2b("\0".join(about).encode(), digest_size=5).hexdigest()
    return f"{pipeline.name}-replay-v{request.version}-{digest}"


def group_of(pipeline: Pipeline, request: Request) -> str:
    """The group that the output's transactions commit offsets for. It begins as the pipeline's own group."""
    return f"{pipeline.group_id}{name_of(pipeline, request).removeprefix(pipeline.name)}"


def read_by(pipeline: Pipeline, model: ModelVersion) -> dict[str, Any]:
    """The settings that decide which events a replay answers and what its model gets of them, as JSON has them.

    A part of the answers that was made with others must not be mixed with these.
    """
    source, settings = pipeline.input, pipeline.model
    config = model.described_by or model.file.parent / CONFIG_FILE
    return {
        "input.filter": [condition.text for condition in source.filter] or None,
        "input.format": source.format,
        "input.schema": source.schema_name,
        "input.json_schema": source.json_schema,
        "input.event_id": source.event_id,
        "input.event_time": source.event_time,
        "input.event_time_format": source.event_time_format,
        "model.inputs": repr(sorted(settings.inputs.items())) if settings.inputs else None,
        "model.allow_nan": settings.allow_nan,
        "model.allow_nan_outputs": settings.allow_nan_outputs,
        f"checksum of {config.name}": hashlib.blake2b(config.read_bytes(), digest_size=8).hexdigest(),
    }


def as_replayed(pipeline: Pipeline, request: Request) -> Pipeline:
    """The pipeline with the version of the replay, without shadows, and without limits that compare events with the clock."""
    model = pipeline.model
    where = without_version(model.repository, same=True)
    output: dict[str, object] = {"include": {}} if request.output is None else {"topic": request.output}
    return pipeline.model_copy(
        update={
            "model": model.model_copy(update={"version": request.version, "repository": where}),
            "shadows": (),
            "rollout": None,  # one version answers all events
            "input": pipeline.input.model_copy(update={"max_age": None, "deadline_header": None, "weights": {}}),
            "output": pipeline.output.model_copy(update=output),
            "batch": pipeline.batch.model_copy(update={"target_p99": None}),
            "on_error": pipeline.on_error.model_copy(update={"stop": ()}),
            "delivery": "exactly_once",  # results stay in the order of their partition, and the sink stores the offsets
            "commit_every": COMMIT_EVERY,
        }
    )
