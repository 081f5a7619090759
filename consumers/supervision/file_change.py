"""Notices that the pipeline file has changed since a worker was started, and says what that means."""

from collections.abc import Mapping
from pathlib import Path

from millstream.pipeline.errors import PipelineError
from millstream.pipeline.loading import load_pipeline
from millstream.pipeline.pipeline import Pipeline


class FileChange:
    """See the module. For one thread."""

    def __init__(self, pipeline: Pipeline, environ: Mapping[str, str]) -> None:
        """Args:
        pipeline: as its file says at the start of the run.
        environ: the environment variables that the file may name.
        """
        self._environ = environ
        self._pipeline = pipeline
        # The content tells a change. It can't tell a save: the file may be half saved for a moment, and then as before.
        self._content = _content(pipeline.path)  # that the last worker was started with
        self._saved: dict[int, int | None] = {}  # number of a worker -> when the file was saved, at the worker's start

    def said(self, number: int) -> str | None:
        """What to say before a worker of this number is started; None: the file is the same as for the last worker."""
        self._saved[number] = _saved(self._pipeline.path)
        before, self._content = self._content, _content(self._pipeline.path)
        if self._content == before:
            return None
        return (
            f"{self._pipeline.path.name} has changed: worker {number} starts with what it says now, and workers that run keep "
            f"what it said. End this run and start it again, so that all have the same{self._effect()}"
        )

    def may_be_half_saved(self, number: int) -> bool:
        """Whether the worker of this number may have read an unfinished file: some editors save it in two steps."""
        try:
            load_pipeline(self._pipeline.path, self._environ)
        except PipelineError:
            return True
        return _saved(self._pipeline.path) != self._saved[number]

    def _effect(self) -> str:
        """What it means that the worker has another task than the others; empty: it has the same."""
        try:
            own, new = map(_task, (self._pipeline, load_pipeline(self._pipeline.path, self._environ)))
        except PipelineError:  # the worker tells it
            return ""
        others = ", ".join(f"`{option}`" for option in own if own[option] != new[option])
        return f". This worker has another {others}, so events may be answered twice, or elsewhere" if others else ""


def _task(pipeline: Pipeline) -> Mapping[str, object]:
    """The options that all workers of a run must share: option -> value."""
    return {
        "name": pipeline.name,
        "group": pipeline.group_id,
        "delivery": pipeline.delivery,
        "input.topics": pipeline.input.topics,
        "output.topic": pipeline.output.topic,
    }


def _saved(file: Path) -> int | None:
    try:
        return file.stat().st_mtime_ns
    except OSError:  # some editors remove it for a moment
        return None


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:  # the worker tells it
        return b""
