"""A model's file, as a record."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ModelInput:
    """An input that the model itself states."""

    tensor: str
    dtype: str
    shape: tuple[int | None, ...]  # of one event; None: any size
    max_length: int | None = None  # most items of an event, if the one axis has a bound; None: no bound is known


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model's file, and what it says of itself."""

    path: Path
    name: str  # of the file in the repository: model.onnx, model.py, ...
    inputs: list[ModelInput]  # empty: the file doesn't say
    outputs: list[str]
