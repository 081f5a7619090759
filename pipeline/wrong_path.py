"""Says what may be meant by a path that leads to no pipeline file."""

from __future__ import annotations

from difflib import get_close_matches
from os.path import relpath
from pathlib import Path
from shlex import quote

from millstream.schemas.file_kind import FileKind, file_kind
from millstream.schemas.yaml_file import advice_on_ending

PIPELINE_FILE = "pipeline.yaml"
_YAML = (".yaml", ".yml")
_CHECK = "Check the path and its permissions."
_MAX_LISTED = 5  # files of the folder that a message lists
_MAX_ABOVE = 4  # folders to look for the pipeline in: PIPELINE/models/NAME/VERSION has a model


def advice_on_missing(path: Path) -> str:
    """What to do about a pipeline file that isn't there, in a sentence."""
    missing = path
    while not missing.parent.exists():
        missing = missing.parent
    if missing.name == PIPELINE_FILE and (advice := advice_on_ending(missing)):
        return advice
    try:
        beside = [entry for entry in missing.parent.iterdir() if entry.suffix in _YAML or entry.is_dir()]
    except OSError:  # a folder that may not be listed, or a file
        return _CHECK
    if close := get_close_matches(missing.name, [entry.name for entry in beside], n=1):
        return f"Did you mean `{missing.with_name(close[0])}`?"
    named = sorted(entry for entry in beside if entry.suffix in _YAML)
    if missing.name != PIPELINE_FILE or not named:
        return _near(path) or _CHECK
    if files := [entry.name for entry in named if file_kind(entry) is not FileKind.CONFIG]:
        return f"The folder has {', '.join(files[:_MAX_LISTED])}: name the file in place of the folder."
    return f"The folder has {FileKind.CONFIG}. {_pipeline_for(path)}"


def wrong_file(path: Path) -> str:
    """What the file is that should be a pipeline file, and what to do; empty: nothing that is known."""
    kind = file_kind(path)
    if kind is None or kind is FileKind.PIPELINE:
        return ""
    return f"expected a pipeline file, found {kind}. {_advice(path, kind)}"


def _advice(path: Path, kind: FileKind) -> str:
    if kind is FileKind.GZIP:
        return f"If it is a pipeline file, unpack it (`gunzip < {quote(str(path))} > NEW.yaml`). {_pipeline_for(path)}"
    if path.name == PIPELINE_FILE:
        return "Write the pipeline file here (`millstream docs pipeline`), and this one into the folder of the model's version."
    if kind in {FileKind.EVENTS, FileKind.CSV}:
        return (
            f"{_pipeline_for(path)} Events come after the pipeline, in commands that take them (`millstream predict`)."
        )
    if kind is FileKind.MODEL:
        made = f"`millstream init DIR --model {path} --sample EVENTS` makes a pipeline for a model."
        return f"{_pipeline_for(path)} {made}"
    return _pipeline_for(path)


def _pipeline_for(path: Path) -> str:
    """The pipeline to name in place of this path."""
    return _near(path) or f"Name the pipeline's folder, or its {PIPELINE_FILE}."


def _near(path: Path) -> str:
    """A question after the pipeline whose folder the path is in; empty: there is none."""
    for folder in path.absolute().parents[:_MAX_ABOVE]:
        if file_kind(folder / PIPELINE_FILE) is FileKind.PIPELINE:
            return f"Did you mean `{folder if path.is_absolute() else Path(relpath(folder))}`?"
    return ""
