"""Reads a model's `config.yaml` together with the line of every value, and says what is wrong with it, each with its line."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from inference.errors import ModelConfigError
from schemas.wording import EXPECTED, Loc, dotted, wrong_value

_EXPECTED = {
    **EXPECTED,
    "int_parsing": "a whole number",
    "float_type": "a number or a text",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "too_short": "at least one",
}


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A config.yaml's content and where each part of it stands."""

    path: Path
    data: dict[str, Any]
    lines: Mapping[Loc, int]  # 1-based line of each key or list item; () is line 1

    def at(self, *loc: str | int) -> str:
        """Where an option stands, to begin a message with: `FILE:LINE: inputs[0].dtype`; without it, where it would."""
        return f"{self.path}:{self.line(loc)}: {dotted(loc)}"

    def line(self, loc: Loc) -> int:
        """The line of an option; where it is not there, that of what it belongs to."""
        return self.lines[self.known(loc)]

    def known(self, loc: Loc) -> Loc:
        """`loc` without the last steps that the file does not have: an absent key, or which type pydantic tried."""
        return next(loc[:depth] for depth in range(len(loc), -1, -1) if loc[:depth] in self.lines)


def read_config_file(path: Path) -> ConfigFile:
    """Read the file.

    Raises:
        ModelConfigError: not there, not YAML, no mapping, or a key is written twice.
    """
    try:
        text = path.read_text(encoding="utf-8")
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except FileNotFoundError:
        raise ModelConfigError(
            f"{path} is missing: it maps event fields to the model's tensors (docs/models.md)."
        ) from None
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        what = "; ".join(part for part in (error.context, error.problem) if part)
        raise ModelConfigError(f"{path}{line}: can't be read, not valid YAML: {what}.") from None
    except RecursionError:
        raise ModelConfigError(f"{path} can't be read: it is nested too deeply.") from None
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        raise ModelConfigError(f"{path} can't be read: {' '.join(str(error).split())}") from None
    if root is None or not isinstance(data, dict):
        raise ModelConfigError(f"{path}: expected `inputs:` and `outputs:`, found {data!r:.60} (docs/models.md).")
    lines: dict[Loc, int] = {(): 1}
    twice = [f"{path}:{message}" for message in _note_lines(root, (), lines, set())]
    if twice:
        raise ModelConfigError("\n".join(twice))
    return ConfigFile(path, data, lines)


def _note_lines(node: yaml.Node, loc: Loc, lines: dict[Loc, int], seen: set[int]) -> Iterator[str]:
    """Note the line of each part; yields what is said of keys that are written twice."""
    if id(node) in seen:  # what an alias stands for may be large, or hold the alias
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            lines[*loc, index] = item.start_mark.line + 1
            yield from _note_lines(item, (*loc, index), lines, seen)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            here, line = (*loc, str(key.value)), key.start_mark.line + 1
            if here in lines:
                yield f"{line}: {dotted(here)}: this key is written twice, on lines {lines[here]} and {line}. Keep one."
                continue
            lines[here] = line
            yield from _note_lines(value, here, lines, seen)


def problems_of(error: ValidationError, file: ConfigFile, allowed: Mapping[str, type[BaseModel]]) -> list[str]:
    """One message for each thing in the error, in the file's order.

    Args:
        error: what pydantic says.
        file: what it says it of.
        allowed: option -> what its items are; "": the file's own keys.
    """
    told: dict[Loc, tuple[int, str]] = {}
    for detail in error.errors(include_url=False):
        missing = detail["type"] == "missing"
        loc = detail["loc"] if missing else file.known(detail["loc"])
        told.setdefault(loc, (file.line(loc), f"{file.at(*loc)}: {_message(detail, loc, allowed)}"))
    return [message for _, message in sorted(told.values(), key=lambda entry: entry[0])]


def _message(detail: ErrorDetails, loc: Loc, allowed: Mapping[str, type[BaseModel]]) -> str:
    match detail["type"]:
        case "missing":
            return "this option is missing (docs/models.md)."
        case "extra_forbidden":
            keys = allowed["" if len(loc) == 1 else str(loc[0])].model_fields
            return _unknown_key(str(loc[-1]), list(keys))
    return f"{wrong_value(detail, _EXPECTED)}."


def _unknown_key(key: str, allowed: Sequence[str]) -> str:
    close = get_close_matches(key, allowed, n=1)
    return f"unknown key. Did you mean {close[0]}?" if close else f"unknown key. Allowed here: {', '.join(allowed)}."
