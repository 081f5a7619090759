"""Reads a model's `config.yaml`, and reports every mistake in it with its line."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from millstream.inference.errors import ModelConfigError
from millstream.schemas.file_kind import FileKind, settings_kind
from millstream.schemas.wording import EXPECTED, Loc, dotted, meant_value, shown, wrong_value
from millstream.schemas.written_numbers import number_of
from millstream.schemas.yaml_file import Fault, NodeReader, YamlError, advice_on_ending, composed, text_of

log = logging.getLogger(__name__)

# Former name -> name, for one version; CHANGELOG.md lists them.
RENAMED = {"lengths": "length_buckets"}  # of the file's own options
RENAMED_INPUT = {"longest": "max_length"}  # of each input's
_EXPECTED = {
    **EXPECTED,
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number of fewer digits",
    "float_type": "a number or a text",
    "float_parsing": "a number",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "too_short": "at least one",
}


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A config.yaml's content and where each part of it stands."""

    path: Path
    data: dict[str, Any] = field(repr=False)  # may contain secrets
    lines: Mapping[Loc, int]  # 1-based line of each key or list item; () is line 1

    def at(self, *loc: str | int) -> str:
        """The place of an option, for the beginning of a message: `FILE:LINE: inputs[0].dtype`. The option may be missing."""
        return f"{self.path}:{self.line(loc)}: {dotted(loc)}"

    def line(self, loc: Loc) -> int:
        """The line of an option; if it is missing, the line of the part that it belongs to."""
        return self.lines[self.known(loc)]

    def known(self, loc: Loc) -> Loc:
        """`loc` without the last steps that are not in the file: a missing key, or the type that pydantic tried."""
        return next(loc[:depth] for depth in range(len(loc), -1, -1) if loc[:depth] in self.lines)


def read_config_file(path: Path) -> ConfigFile:
    """Read the file.

    Raises:
        ModelConfigError: not there, not YAML, no mapping, a pipeline file, or parts of it can't be read.
    """
    reader = _Reader()
    try:
        if path.exists() and not path.is_file():  # opening a named pipe would block forever
            raise ModelConfigError(f"{path} can't be read: expected a file, found something else.")
        root = composed(text_of(path))
        data = None if root is None else reader.read(root)
    except YamlError as error:
        raise ModelConfigError(told(path, error.fault)) from None
    except FileNotFoundError:
        advice = advice_on_ending(path)
        raise ModelConfigError(
            f"{path} is missing: it maps event fields to the model's tensors (`millstream docs models`)."
            f"{' ' if advice else ''}{advice}"
        ) from None
    except OSError as error:
        raise ModelConfigError(f"{path} can't be read: {error.strerror}.") from None
    if settings_kind(data) is FileKind.PIPELINE:
        raise ModelConfigError(
            f"{path}: expected {FileKind.CONFIG}, found {FileKind.PIPELINE}. Write the model's `inputs:` and `outputs:` here "
            "(`millstream docs models`), and the pipeline file into the folder of the pipeline."
        )
    if reader.faults:
        raise ModelConfigError("\n".join(told(path, fault) for fault in reader.faults))
    if not isinstance(data, dict):
        raise ModelConfigError(
            f"{path}: expected `inputs:` and `outputs:`, found {shown(data)} (`millstream docs models`)."
        )
    return _with_new_names(ConfigFile(path, data, reader.lines))


def _with_new_names(file: ConfigFile) -> ConfigFile:
    """The file with each option under its present name. Raises ModelConfigError if an option is there under both names."""
    file = _renamed(file, (), RENAMED)
    inputs = file.data.get("inputs")
    for index in range(len(inputs)) if isinstance(inputs, list | tuple) else ():
        file = _renamed(file, ("inputs", index), RENAMED_INPUT)
    return file


def _renamed(file: ConfigFile, loc: Loc, names: Mapping[str, str]) -> ConfigFile:
    options = file.data
    for step in loc:
        options = options[step]  # type: ignore[index]
    for former, name in names.items():
        if not isinstance(options, dict) or former not in options:
            continue
        place = file.at(*loc, former)
        if name in options:
            raise ModelConfigError(f"{place}: expected one of {former} and {name}, found both. Keep {name}.")
        log.warning("%s is now %s; the former name works in this version only", place, name)
        options[name] = options.pop(former)
        depth = len(loc)
        lines = {
            (*at[:depth], name, *at[depth + 1 :]) if at[: depth + 1] == (*loc, former) else at: line
            for at, line in file.lines.items()
        }
        file = replace(file, lines=lines)
    return file


class _Reader(NodeReader):
    """Also reads numbers with an exponent."""

    def scalar(self, text: str, kind: str, *, plain: bool, loc: Loc) -> object:
        """See `NodeReader`."""
        if kind == "float" and (number := number_of(text)) is not None:
            return number
        return super().scalar(text, kind, plain=plain, loc=loc)


def told(path: Path | str, fault: Fault) -> str:
    """A mistake in a file as a message that begins with its place."""
    where = f"{path}:{fault.line}" if fault.line else f"{path}"
    said = f"{where}: {fault.place}: {fault.message}" if fault.place else f"{where}: can't be read: {fault.message}"
    return "\n    ".join([said, *fault.excerpt.splitlines()])


def problems_of(
    error: ValidationError, file: ConfigFile, allowed: Mapping[str, type[BaseModel]], section: Loc = ()
) -> list[str]:
    """One message for each problem in the error, in the order of the file.

    Args:
        error: what pydantic says.
        file: what it says it of.
        allowed: place of a mapping, without the numbers of list items -> its options; "": the file's own.
        section: the part of the file that pydantic was given.
    """
    told: dict[Loc, tuple[int, str]] = {}
    for detail in error.errors(include_url=False):
        missing = detail["type"] == "missing"
        whole = section + detail["loc"]
        loc = whole if missing else file.known(whole)
        told.setdefault(loc, (file.line(loc), f"{file.at(*loc)}: {message_of(detail, loc, allowed)}"))
    return [message for _, message in sorted(told.values(), key=lambda entry: entry[0])]


def message_of(detail: ErrorDetails, loc: Loc, allowed: Mapping[str, type[BaseModel]]) -> str:
    """What is wrong with the option at `loc`, and what to do. `allowed`: see `problems_of`."""
    match detail["type"]:
        case "missing":
            return "this option is missing (`millstream docs models`)."
        case "extra_forbidden":
            fields = allowed[".".join(step for step in loc[:-1] if isinstance(step, str))].model_fields
            return _unknown_key(str(loc[-1]), [field.alias or name for name, field in fields.items()])
    return f"{wrong_value(detail, _EXPECTED)}.{meant_value(detail)}"


def _unknown_key(key: str, allowed: Sequence[str]) -> str:
    close = get_close_matches(key, allowed, n=1)
    return f"unknown key. Did you mean {close[0]}?" if close else f"unknown key. Allowed here: {', '.join(allowed)}."
