"""Reads what the command line names: the pipeline file, and a topic."""

import argparse
import os
from collections.abc import Collection
from pathlib import Path

from millstream.consumers.cli.parser import meant
from millstream.consumers.errors import WorkerError
from millstream.consumers.observability.json_log import note
from millstream.pipeline.errors import PipelineError, Problem
from millstream.pipeline.loading import load_pipeline
from millstream.pipeline.pipeline import Pipeline
from millstream.pipeline.wrong_path import PIPELINE_FILE
from millstream.schemas.file_kind import FileKind, file_kind
from millstream.topics.admin import Admin, roles, states
from millstream.topics.errors import TopicError


def read_pipeline(args: argparse.Namespace) -> Pipeline:
    """Load the pipeline file of the command line; if it names a folder, its file `pipeline.yaml`."""
    path = _pipeline_file(args.pipeline)
    try:
        pipeline = load_pipeline(path, os.environ)
    except PipelineError:
        if not _are_swapped(path, getattr(args, "file", None)):
            raise
    else:
        note(pipeline=pipeline.name)
        return pipeline
    found = file_kind(path) or "another file"
    said = (
        f"expected a pipeline file, found {found}. `{args.file}`, in place of the events, is a pipeline. Name it first."
    )
    raise PipelineError(path, [Problem(said)])


def _pipeline_file(path: Path) -> Path:
    return path / PIPELINE_FILE if path.is_dir() else path


def _are_swapped(path: Path, events: str | None) -> bool:
    """Whether the pipeline is named in place of the events. `path`: named in place of the pipeline."""
    if events is None or not path.is_file() or file_kind(path) is FileKind.PIPELINE:
        return False
    return file_kind(_pipeline_file(Path(events))) is FileKind.PIPELINE


def refuse_unknown_topic(pipeline: Pipeline, name: str, choices: Collection[str] = ()) -> None:
    """Check a topic that the command line names. One of the pipeline's own topics may be missing: then it can be created.

    Raises:
        BrokerUnreachableError: no broker answers.
        TopicError: the broker has no such topic, and the pipeline doesn't use one of this name.
    """
    own = [topic for _, topic in roles(pipeline)]
    if name in own or states(Admin(pipeline.client_config()), [("", name)])[0].partitions is not None:
        return
    known = [*choices, *own]
    raise TopicError(
        f"--topic {name}: there is no such topic on {pipeline.kafka.bootstrap}, or this user may not see it."
        f"{meant(name, known)} Choose one of {pipeline.path.name}: {', '.join(known)}; or the name of another topic that exists."
    )


def refuse_several(pipeline: Pipeline, command: str) -> None:
    """Refuse a pipeline with several models, for a command that works on one. Raises WorkerError."""
    if pipeline.models is not None:
        raise WorkerError(
            f"{pipeline.at('models')}: `millstream {command}` works on one model, found `models`. Write a second "
            f"pipeline file, with `model:` in place of `models:`, and name the model there."
        )
