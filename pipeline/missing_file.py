"""Says what may be meant by a path to a pipeline file that leads nowhere."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from millstream.schemas.yaml_file import advice_on_ending

if TYPE_CHECKING:
    from pathlib import Path

PIPELINE_FILE = "pipeline.yaml"
_YAML = (".yaml", ".yml")
_CHECK = "Check the path and its permissions."
_MAX_LISTED = 5  # files of the folder that a message lists


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
    files = sorted(entry.name for entry in beside if entry.suffix in _YAML)
    if missing.name != PIPELINE_FILE or not files:
        return _CHECK
    return f"The folder has {', '.join(files[:_MAX_LISTED])}: name the file in place of the folder."
