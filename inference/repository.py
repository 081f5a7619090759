"""Reads the model repository: `<repository>/<name>/<version>/` has the model and `config.yaml` (Triton's layout)."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from millstream.inference.config_file import ConfigFile, problems_of, read_config_file
from millstream.inference.errors import ModelConfigError
from millstream.inference.signature import DTYPES, Signature, TensorInput, TensorOutput
from millstream.schemas.wording import shown

EXECUTORS = {"model.onnx": "onnx", "model.pt2": "torch", "model.pt": "torch", "model.py": "python"}
"""The model's file -> the executor that runs it."""
CONFIG_FILE = "config.yaml"
LARGEST_VERSION = 2**31 - 1  # largest that fits the prediction's schema (int)
# Bounds for slips of the pen in config.yaml: the warm-up runs a batch of the largest size, which could take all memory.
MAX_EVENTS = 65_536  # of a batch
MAX_VALUES = 2**28  # of a batch in one tensor: 1 GiB as float32
Fields = dict[str, str | list[str]]
"""Tensor -> the event's field that fills it (an array), or fields (scalars)."""


@dataclass(frozen=True, slots=True)
class ModelVersion:
    """One version of a model on disk."""

    name: str
    version: int
    file: Path
    executor: str  # a value of EXECUTORS
    signature: Signature
    batch_sizes: tuple[int, ...]  # preferred sizes, ascending; empty: powers of two
    length_buckets: tuple[int, ...] = ()  # lengths to pad to, ascending; empty: powers of two

    @property
    def place(self) -> str:
        """How messages name the model version."""
        return f"model {self.name} version {self.version} ({self.file.parent / CONFIG_FILE})"


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Input(_Entry):
    tensor: str
    field: str | None = None
    fields: list[str] | None = Field(default=None, min_length=1)
    dtype: str
    shape: list[int] = Field(default_factory=list)
    max_length: int | None = Field(default=None, ge=1)
    pad: float | str | None = None
    mask: bool = False

    @model_validator(mode="after")
    def _whole(self) -> "_Input":
        if (self.field is None) + (self.fields is None) + (not self.mask) != 2:
            raise ValueError(
                "write either `field` (one array field) or `fields` (scalar fields, one column each), or `mask: true`"
            )
        if self.max_length is not None and (self.field is None or self.shape):
            raise ValueError("`max_length` is for a `field` whose length varies, and stands in place of its `shape`")
        if self.mask and self.shape:
            raise ValueError("a mask has the shape of the inputs that vary in length: leave `shape` out")
        if isinstance(self.pad, str) and self.dtype in DTYPES and self.dtype != "string":
            raise ValueError(f"`pad` is a value of the dtype, a finite number here, found {shown(self.pad)}")
        if self.pad is not None and (self.max_length is None or isinstance(self.pad, str) != (self.dtype == "string")):
            raise ValueError("`pad` is a value of the dtype, and stands beside `max_length`")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype `{self.dtype}` is not one of {', '.join(DTYPES)}")
        if any(size < 1 for size in self.shape):
            raise ValueError(f"shape {self.shape} is the shape of one event: every size is at least 1")
        return self


class _Output(_Entry):
    tensor: str
    name: str | None = None


class _Config(_Entry):
    description: str = ""
    executor: Literal["onnx", "torch", "python"] | None = None
    inputs: list[_Input] = Field(min_length=1)
    outputs: list[_Output] = Field(min_length=1)
    batch_sizes: list[Annotated[int, Field(ge=1, le=MAX_EVENTS)]] = Field(default_factory=list)
    length_buckets: list[Annotated[int, Field(ge=1)]] = Field(default_factory=list)


def load_version(
    repository: Path,
    name: str,
    version: int | None = None,
    fields: Fields | None = None,
    mapped_at: Callable[[str], str] = lambda tensor: f"pipeline file: model.inputs.{tensor}",
    named_at: str = "pipeline file: model",
) -> ModelVersion:
    """Find a model version and read its config.yaml.

    Args:
        repository: the model repository's folder.
        name: the model's name, a folder in it.
        version: the number of its folder; None takes the only one.
        fields: tensor -> event field (an array) or fields (scalars). They replace those in config.yaml.
        mapped_at: returns the place of a tensor's mapping in the pipeline file, for messages.
        named_at: the place of the model's name and version in the pipeline file, for messages.

    Raises:
        ModelConfigError: there is no such version, several and none is named, or its config.yaml is wrong.
    """
    folder = repository / name
    if not folder.is_dir():
        there = (
            _listed(path.name for path in repository.iterdir() if path.is_dir())
            if repository.is_dir()
            else "no such folder"
        )
        raise ModelConfigError(
            f"model repository {repository} has no model `{name}` (there: {there}). Put it at {folder}/1/."
        )
    versions = sorted(
        number for path in folder.iterdir() if path.is_dir() and (number := _number(path.name)) is not None
    )
    if not versions or (version is not None and version not in versions):
        wanted = "no version" if version is None else f"no version {version}"
        raise ModelConfigError(f"model `{name}` has {wanted} in {folder} (there: {_listed(versions)}).")
    if version is None and len(versions) > 1:
        raise ModelConfigError(
            f"{named_at}: expected a `version`, because model `{name}` has several in {folder}; found none. Name the one that "
            f"makes the predictions: write `version: {versions[-1]}` under `model:` (there: {_listed(versions)})."
        )
    chosen = versions[0] if version is None else version
    place = folder / str(chosen)
    # Checked before config.yaml, because a folder without a model lacks more than its config.
    files = [place / file for file in EXECUTORS if (place / file).is_file()]
    if not files:
        raise ModelConfigError(
            f"model `{name}` version {chosen} has no model: expected one of {', '.join(EXECUTORS)} in {place}."
        )
    written = read_config_file(place / CONFIG_FILE)
    config = _parsed(written)
    file = _model_file(files, config.executor, written)
    signature = _signature(config, fields or {}, mapped_at, written)
    _refuse_enormous(signature, config.batch_sizes, written)
    sizes, length_buckets = tuple(sorted(set(config.batch_sizes))), tuple(sorted(set(config.length_buckets)))
    return ModelVersion(name, chosen, file, EXECUTORS[file.name], signature, sizes, length_buckets)


def _model_file(files: list[Path], executor: str | None, written: ConfigFile) -> Path:
    fitting = [file for file in files if executor in {None, EXECUTORS[file.name]}]
    if len(fitting) == 1:
        return fitting[0]
    there = ", ".join(file.name for file in files)
    if executor is None:
        raise ModelConfigError(
            f"{written.path.parent} has several models: {there}. Say in {CONFIG_FILE} which one runs: `executor: "
            f"{EXECUTORS[files[0].name]}`, for instance; or take the others away."
        )
    own = " or ".join(name for name, runs in EXECUTORS.items() if runs == executor)
    raise ModelConfigError(
        f"{written.at('executor')}: `executor: {executor}` needs one file {own} beside it, and there is {there}."
    )


def _number(name: str) -> int | None:
    """The version number in a folder's name. None if it is above the largest or has leading zeros (`007`)."""
    return int(name) if re.fullmatch("0|[1-9][0-9]{0,9}", name) and int(name) <= LARGEST_VERSION else None


def _listed(names: Any) -> str:
    return ", ".join(str(name) for name in sorted(names)) or "none"


def _parsed(file: ConfigFile) -> _Config:
    try:
        return _Config.model_validate(file.data)
    except ValidationError as error:
        problems = problems_of(error, file, {"": _Config, "inputs": _Input, "outputs": _Output})
    # Raised outside of `except`, so that the traceback doesn't show pydantic's error too.
    raise ModelConfigError("\n".join(problems))


def _signature(config: _Config, fields: Fields, mapped_at: Callable[[str], str], written: ConfigFile) -> Signature:
    tensors = [entry.tensor for entry in config.inputs]
    unknown = next((tensor for tensor in fields if tensor not in tensors), None)
    if unknown is not None:
        raise ModelConfigError(
            f"{mapped_at(unknown)}: expected an input of the model ({_listed(tensors)}, says {written.path}), found {unknown}."
        )
    _refuse_doubles("inputs", "tensor", tensors, written)
    names = [entry.name or entry.tensor for entry in config.outputs]
    _refuse_doubles("outputs", "output", names, written)
    max_length = _max_length(config, written)
    inputs = tuple(
        _mapped_input(entry, fields[entry.tensor], max_length, mapped_at(entry.tensor), written.path)
        if entry.tensor in fields
        else _tensor_input(entry, max_length, written.at("inputs", index))
        for index, entry in enumerate(config.inputs)
    )
    outputs = tuple(TensorOutput(entry.tensor, name) for entry, name in zip(config.outputs, names, strict=True))
    return Signature(inputs, outputs)


def _refuse_doubles(option: str, kind: str, names: list[str], written: ConfigFile) -> None:
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ModelConfigError(f"{written.at(option, index)}: {kind} {name} is there twice. Write each once.")


def _refuse_enormous(signature: Signature, batch_sizes: list[int], written: ConfigFile) -> None:
    """Refuse batches that would take too much memory."""
    events = max(batch_sizes, default=1)
    for index, entry in enumerate(signature.inputs):
        if entry.width * events > MAX_VALUES:
            place = written.at("batch_sizes") if batch_sizes else written.at("inputs", index)
            raise ModelConfigError(
                f"{place}: expected at most {MAX_VALUES} values of a tensor in a batch, found {events} events of {entry.width} "
                f"values in tensor `{entry.tensor}`. Write {'a smaller size' if batch_sizes else 'a smaller shape'}."
            )


def _max_length(config: _Config, written: ConfigFile) -> int | None:
    """The `max_length` that all inputs of variable length share; None: there are none."""
    max_length = {entry.max_length for entry in config.inputs if entry.max_length is not None}
    if len(max_length) > 1:
        raise ModelConfigError(
            f"{written.at('inputs')}: inputs of varying length share one `max_length`, found {_listed(max_length)}: they run "
            "side by side."
        )
    if not max_length and (config.length_buckets or any(entry.mask for entry in config.inputs)):
        place = written.at("length_buckets" if config.length_buckets else "inputs")
        raise ModelConfigError(
            f"{place}: `length_buckets` and `mask` are for inputs of varying length: give one `max_length` "
            "(`millstream docs models`)."
        )
    if max_length and any(length > max(max_length) for length in config.length_buckets):
        raise ModelConfigError(
            f"{written.at('length_buckets')}: `length_buckets` go up to `max_length`, {max(max_length)}."
        )
    return max_length.pop() if max_length else None


def _mapped_input(
    entry: _Input, fields: str | list[str], max_length: int | None, place: str, path: Path
) -> TensorInput:
    """The input with the fields from the pipeline file, at `place`. The rest comes from config.yaml, at `path`."""
    if entry.mask:
        raise ModelConfigError(
            f"{place}: tensor `{entry.tensor}` is a mask, which no field fills ({path}). Take it out here."
        )
    one = isinstance(fields, str)
    given = entry.model_copy(update={"field": fields if one else None, "fields": None if one else fields})
    return replace(_tensor_input(given, max_length, place, f"; the model's config: {path}"), mapped_at=place)


def _tensor_input(entry: _Input, max_length: int | None, place: str, says: str = "") -> TensorInput:
    """Create an input. Messages begin with `place`, the place of its fields, and end with `says`."""
    if entry.mask:
        return TensorInput(entry.tensor, (), True, entry.dtype, (max_length or 0,), max_length, mask=True)
    if entry.max_length is not None:
        if entry.field is None:
            raise ModelConfigError(
                f"{place}: tensor `{entry.tensor}` varies in length: one array field fills it{says}."
            )
        pad = entry.pad if entry.pad is not None else "" if entry.dtype == "string" else 0
        return TensorInput(entry.tensor, (entry.field,), True, entry.dtype, (entry.max_length,), entry.max_length, pad)
    array = entry.field is not None
    fields = (entry.field,) if entry.field is not None else tuple(entry.fields or ())
    shape = tuple(entry.shape) if entry.shape else (() if array else (len(fields),))
    made = TensorInput(entry.tensor, fields, array, entry.dtype, shape)
    if array and not entry.shape:
        raise ModelConfigError(
            f"{place}: tensor `{entry.tensor}` is filled by the array field `{entry.field}`: give its `shape`, such as "
            f"[32]{says}."
        )
    if not array and made.width != len(fields):
        raise ModelConfigError(
            f"{place}: tensor `{entry.tensor}` has shape {list(shape)}, {made.width} values an event, but {len(fields)} "
            f"fields are listed for it ({', '.join(fields)}){says}."
        )
    return made
