"""What a model takes and gives: event fields <-> tensors, checked before the first event and for every event."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from inference.errors import ModelConfigError

DTYPES: dict[str, tuple[np.dtype[Any], pl.DataType]] = {
    "float32": (np.dtype(np.float32), pl.Float32()),
    "float64": (np.dtype(np.float64), pl.Float64()),
    "int32": (np.dtype(np.int32), pl.Int32()),
    "int64": (np.dtype(np.int64), pl.Int64()),
    "bool": (np.dtype(np.bool_), pl.Boolean()),
    "string": (np.dtype(object), pl.String()),
}
"""Tensor element types that event fields can fill: name in config.yaml -> numpy's and polars' type."""


@dataclass(frozen=True, slots=True)
class TensorInput:
    """One input tensor and the event fields that fill it."""

    tensor: str
    fields: tuple[str, ...]  # scalar fields, one column each; or the one array field
    array: bool  # True: the one field is an array
    dtype: str  # a key of DTYPES
    shape: tuple[int, ...]  # of one event

    @property
    def width(self) -> int:
        """Elements an event fills."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class TensorOutput:
    """One output tensor and its name in the prediction."""

    tensor: str
    name: str


@dataclass(frozen=True, slots=True)
class Signature:
    """All inputs and outputs of a model."""

    inputs: tuple[TensorInput, ...]
    outputs: tuple[TensorOutput, ...]

    @property
    def fields(self) -> list[str]:
        """The event fields needed, each once."""
        return list(dict.fromkeys(field for entry in self.inputs for field in entry.fields))


def blank(inputs: Sequence[TensorInput], events: int) -> dict[str, npt.NDArray[Any]]:
    """Tensors of zeros and empty strings for so many events."""
    return {
        entry.tensor: np.full((events, *entry.shape), "" if entry.dtype == "string" else 0, DTYPES[entry.dtype][0])
        for entry in inputs
    }


@dataclass(frozen=True, slots=True)
class Unfit:
    """An event that does not fit the model's input."""

    row: int  # in the frame given
    error: str


@dataclass(frozen=True, slots=True)
class Fitted:
    """The events that fit, as tensors."""

    tensors: dict[str, npt.NDArray[Any]]  # tensor -> [len(rows), *shape]
    rows: npt.NDArray[np.int64]  # index in the frame given, ascending
    unfit: list[Unfit]  # the rest, ascending


def check_fields(signature: Signature, columns: Mapping[str, pl.DataType], place: str, schema_name: str) -> None:
    """Check that the event's fields can fill the tensors.

    Raises:
        ModelConfigError: naming `place` (the model), field, tensor, what was expected and what was found.
    """
    for entry in signature.inputs:
        for field in entry.fields:
            found = columns.get(field)
            problem = "has no such field" if found is None else _misfit(entry, found)
            if problem:
                expected = f"an array of {entry.width} x {entry.dtype}" if entry.array else entry.dtype
                raise ModelConfigError(
                    f"{place}: tensor `{entry.tensor}` takes {expected} from the event's field `{field}`, but schema "
                    f"`{schema_name}` {problem}. Change the mapping in the model's config.yaml (or `model.inputs` in the "
                    f"pipeline file), or the schema."
                )


def _misfit(entry: TensorInput, found: pl.DataType) -> str:
    if entry.array:
        if not isinstance(found, pl.List):
            return f"has {_words(found)} there"
        element = _as_instance(found.inner)
        return "" if _fills(entry.dtype, element) else f"has an array of {_words(element)} there"
    return "" if _fills(entry.dtype, found) else f"has {_words(found)} there"


def _as_instance(dtype: pl.DataType | pl.datatypes.DataTypeClass) -> pl.DataType:
    return dtype() if isinstance(dtype, type) else dtype


def _words(dtype: pl.DataType) -> str:
    return str(dtype).lower()


def _fills(tensor: str, field: pl.DataType) -> bool:
    """Whether a field of this type fills a tensor of this type without changing its meaning (precision may narrow)."""
    if tensor == "string":
        return field == pl.String
    if tensor == "bool":
        return field == pl.Boolean
    if tensor.startswith("int"):
        return field in {pl.Int32, pl.Int64}
    return field in {pl.Int32, pl.Int64, pl.Float32, pl.Float64, pl.Boolean}


def fit(frame: pl.DataFrame, inputs: Sequence[TensorInput], *, allow_nan: bool) -> Fitted:
    """Turn a frame of events into tensors, leaving out the events that don't fit, each with the reason."""
    problems: dict[int, str] = {}
    filled = [_fill(frame, entry, problems, allow_nan=allow_nan) for entry in inputs]
    if not problems:
        return Fitted(
            {entry.tensor: array for entry, array in zip(inputs, filled, strict=True) if array is not None},
            np.arange(len(frame)),
            [],
        )
    rows = np.setdiff1d(np.arange(len(frame)), np.fromiter(problems, np.int64))
    # The rest may show more: a column with a null was not looked through for NaN, for instance.
    kept = fit(frame[rows], inputs, allow_nan=allow_nan)
    problems |= {int(rows[unfit.row]): unfit.error for unfit in kept.unfit}
    return Fitted(kept.tensors, rows[kept.rows], [Unfit(row, problems[row]) for row in sorted(problems)])


def _fill(
    frame: pl.DataFrame, entry: TensorInput, problems: dict[int, str], *, allow_nan: bool
) -> npt.NDArray[Any] | None:
    """The tensor [events, *shape]; or None, with the reasons added to `problems` by row, where an event doesn't fit."""
    array = _fill_array(frame, entry, problems) if entry.array else _fill_scalars(frame, entry, problems)
    if array is None:
        return None
    if not allow_nan and array.dtype.kind == "f" and not np.isfinite(array).all():
        for row in np.flatnonzero(~np.isfinite(array).all(axis=tuple(range(1, array.ndim)))).tolist():
            at = int(np.flatnonzero(~np.isfinite(array[row].reshape(-1)))[0])
            where = f"`{entry.fields[0]}`[{at}]" if entry.array else f"`{entry.fields[at]}`"
            problems.setdefault(row, f"field {where} is NaN or infinite, which tensor `{entry.tensor}` does not take")
        return None
    return array


def _fill_scalars(frame: pl.DataFrame, entry: TensorInput, problems: dict[int, str]) -> npt.NDArray[Any] | None:
    numpy_type, polars_type = DTYPES[entry.dtype]
    array = np.empty((len(frame), len(entry.fields)), numpy_type)
    whole = True
    for column, field in enumerate(entry.fields):
        series = frame[field]
        cast = series if series.dtype == polars_type else series.cast(polars_type, strict=False)
        if cast.null_count():
            whole = False
            for row in np.flatnonzero(cast.is_null().to_numpy()).tolist():
                found = "null" if series[row] is None else f"{series[row]}, out of range for {entry.dtype}"
                problems.setdefault(row, f"field `{field}` is {found}, but tensor `{entry.tensor}` needs a value")
        else:
            array[:, column] = cast.to_numpy()
    return array.reshape(len(frame), *entry.shape) if whole else None


def _fill_array(frame: pl.DataFrame, entry: TensorInput, problems: dict[int, str]) -> npt.NDArray[Any] | None:
    field, polars_type = entry.fields[0], DTYPES[entry.dtype][1]
    series = frame[field]
    whole = _whole_array(series, entry, polars_type)
    if whole is not None:
        return whole
    lengths = series.list.len()
    if series.null_count() or not bool((lengths == entry.width).all()):
        for row in np.flatnonzero((lengths != entry.width).fill_null(value=True).to_numpy()).tolist():
            found = "null" if lengths[row] is None else f"{lengths[row]} values"
            problems.setdefault(
                row, f"field `{field}` has {found}, but tensor `{entry.tensor}` needs {entry.width} values"
            )
        return None
    flat = series.explode() if len(frame) else pl.Series(dtype=polars_type)
    cast = flat if flat.dtype == polars_type else flat.cast(polars_type, strict=False)
    if cast.null_count():
        for element in np.flatnonzero(cast.is_null().to_numpy()).tolist():
            row, at = divmod(element, entry.width)
            problems.setdefault(
                row,
                f"field `{field}`[{at}] is null or out of range for {entry.dtype}, which tensor `{entry.tensor}` needs",
            )
        return None
    return cast.to_numpy().reshape(len(frame), *entry.shape)


def _whole_array(series: pl.Series, entry: TensorInput, polars_type: pl.DataType) -> npt.NDArray[Any] | None:
    """The tensor where all is as it should be, which is usual and takes a tenth of the time; else None."""
    if not polars_type.is_float() or series.null_count() or not len(series):
        return None
    try:
        array = series.cast(pl.Array(polars_type, entry.width)).to_numpy()
    except pl.exceptions.PolarsError:  # a length is another
        return None
    # A null in an array would be NaN here.
    return array.reshape(len(series), *entry.shape) if np.isfinite(array).all() else None
