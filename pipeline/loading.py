"""Reads a pipeline file and checks it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError

from millstream.pipeline.conflicts import conflicts
from millstream.pipeline.errors import PipelineError, Problem
from millstream.pipeline.json_schema import schema_tree
from millstream.pipeline.pipeline import Pipeline
from millstream.pipeline.problems import problems_of
from millstream.pipeline.renamed import with_new_names
from millstream.pipeline.secret import Origin
from millstream.pipeline.wrong_path import wrong_file
from millstream.pipeline.yaml_places import Document, read_document
from millstream.schemas.wording import dotted

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def load_pipeline(path: Path, environ: Mapping[str, str]) -> Pipeline:
    """Read and check the pipeline file at `path`; variables and secrets come from `environ`.

    Raises PipelineError, which lists every problem found with its line, or names the other kind of file that this is.
    """
    try:
        return _loaded(path, environ)
    except PipelineError:
        # Only now, so that a pipeline file that is right is parsed once.
        if not (said := wrong_file(path)):
            raise
    raise PipelineError(path, [Problem(said)])


def _loaded(path: Path, environ: Mapping[str, str]) -> Pipeline:
    document = with_new_names(read_document(path, environ))
    pipeline, problems = _validated(document, Origin(path.absolute(), environ, document))
    if pipeline is not None:
        problems.extend(
            Problem(message, document.lines[document.known(place)], dotted(place))
            for place, message in conflicts(pipeline, document)
        )
    if pipeline is None or problems or document.problems:
        raise PipelineError(path, [*document.problems, *problems])
    return pipeline


def _validated(document: Document, origin: Origin) -> tuple[Pipeline | None, list[Problem]]:
    # Raising here would chain pydantic's error, which contains the values.
    try:
        return Pipeline.model_validate(document.data, context=origin), []
    except ValidationError as error:
        return None, problems_of(error, document, schema_tree(Pipeline))
