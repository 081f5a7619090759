"""Makes arrays of what a Python model returns, so that no event changes the values of another one."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

TAKEN = "a prediction takes float16 to float64, integers that fit in 64 bits with sign, bool and str"
_KINDS: Sequence[tuple[tuple[type, ...], str]] = (
    ((bool, np.bool_), "bool"),
    ((int, np.integer), "int"),
    ((float, np.floating), "float"),
    ((str,), "str"),
)
_SCALARS = (int, float, str, np.generic)


class OutputError(ValueError):
    """The output is no array that a prediction takes. The text goes on after "output `x`"."""


def as_array(output: object, events: int) -> Array:
    """A copy of an output, because the model may write into it later.

    numpy makes texts of numbers that stand beside texts, numbers of booleans beside numbers, and floats of integers beside
    floats. So one event would change the others. Therefore values of several types are refused, but for integers beside floats
    if floats hold them exactly.

    Args:
        output: what the model returned: an array, or what numpy takes for one, such as a list.
        events: how many it should have.

    Returns:
        [events, ...] of float16 to float64, integers of up to 64 bits, bool, or object: each a str.

    Raises:
        OutputError: it is something else.
    """
    array = _array_of(output)
    if array.ndim == 0:
        raise OutputError(f"is one {type(output).__name__}, not an array or a list with an entry for each event")
    if array.dtype.kind in "OU":
        array = _of_one_type(array.astype(object, copy=False))
    if len(array) != events:
        raise OutputError(f"has shape {list(array.shape)} for {events} events: its first axis must be the event")
    match array.dtype.kind, array.dtype.itemsize:
        case ("b" | "i" | "O", _) | ("u", 1 | 2 | 4) | ("f", 2 | 4 | 8):
            return array
    raise OutputError(f"holds {array.dtype}: {TAKEN}")


def _array_of(output: object) -> Array:
    """An array that has lost nothing. If it isn't sure of which type the values are, they are objects."""
    try:
        output = _without_tables(output)
        return _joined(output) if isinstance(output, list | tuple) else np.array(output)
    except OutputError:
        raise
    except Exception as error:  # arrays of different lengths, a tensor on a GPU
        raise OutputError(f"is no array: {error}") from None


def _without_tables(output: Any) -> Any:
    """The output with arrays in place of the columns and frames of pandas and polars, if no value of it is masked or missing.

    numpy would give the value behind a mask, and NaN for one that is missing.
    """
    if isinstance(output, list | tuple):
        if all(issubclass(kind, _SCALARS) for kind in set(map(type, output))):  # faster than a look at each of them
            return output
        return [_without_tables(item) for item in output]
    if isinstance(output, np.ma.MaskedArray) and np.ma.is_masked(output):  # np.ma.masked is one, too
        raise OutputError(f"holds a masked value: {TAKEN}")
    if hasattr(output, "to_numpy") and hasattr(output, "columns"):
        columns = getattr(output, "iloc", output)  # the first is of pandas
        return np.moveaxis(_joined([_of_column(columns[:, at]) for at in range(output.shape[1])]), 0, 1)
    return _of_column(output) if hasattr(output, "to_numpy") and hasattr(output, "dtype") else output


def _of_column(column: Any) -> Array:
    """The values of a column of pandas or polars."""
    if hasattr(column, "null_count"):  # polars: lists in a column may have nulls, too
        if column.null_count() or column.dtype.is_nested():
            return np.array(column.to_list(), object)
    # In numpy's own types, NaN is a value.
    elif not isinstance(column.dtype, np.dtype) and column.isna().any():
        raise OutputError(f"holds a missing value: {TAKEN}")
    return column.to_numpy()  # type: ignore[no-any-return]


def _joined(items: Sequence[object]) -> Array:
    """An array of lists, values or arrays. Arrays of one type keep it, such as float32."""
    types = {item.dtype if isinstance(item, np.ndarray) else None for item in items}
    return np.array(items, object if None in types or len(types) > 1 else None)


def _of_one_type(array: Array) -> Array:
    """The array with numpy's type for its values; texts stay objects, which keep zeros at their ends and take less memory."""
    items = array.reshape(-1).tolist()
    kinds = {_kind_of(kind) for kind in set(map(type, items))}
    if kinds == {"str"}:
        return _checked_texts(array, items)
    if kinds & {"list", "tuple", "ndarray"}:
        raise OutputError("has lists of different lengths, or values beside lists: give each event the same shape")
    if unknown := kinds - {name for _, name in _KINDS}:
        raise OutputError(f"holds {', '.join(sorted(unknown))}: {TAKEN}")
    if kinds == {"int", "float"} and all(map(_is_exact, items)):
        return np.array(items, np.float64).reshape(array.shape)
    if len(kinds) > 1:
        raise OutputError(f"holds {' beside '.join(sorted(kinds))}: give all events the same type")
    if kinds == {"int"}:
        return _integers(items).reshape(array.shape)
    return np.array(items).reshape(array.shape)


def _kind_of(kind: type) -> str:
    return next((name for kinds, name in _KINDS if issubclass(kind, kinds)), kind.__name__)


def _integers(items: Sequence[int]) -> Array:
    made = np.array(items)
    if made.dtype.kind == "i":  # numpy makes floats or uint64 of others
        return made
    try:
        return np.array([int(item) for item in items], np.int64)
    except OverflowError:
        raise OutputError(f"holds an integer that is too large: {TAKEN}") from None


def _is_exact(number: Any) -> bool:
    """Whether a float64 holds the number. An integer must also fit in 64 bits: alone, it would be refused."""
    return isinstance(number, float | np.floating) or (-(2**63) <= number < 2**63 and float(number) == number)


def _checked_texts(array: Array, texts: Sequence[str]) -> Array:
    if set(map(type, texts)) != {str}:  # numpy's own, or the members of an enum: encoders take neither
        array = np.array([str.__str__(text) for text in texts], object).reshape(array.shape)
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        raise OutputError("holds a text with half of a character (a lone surrogate): give whole ones") from None
    return array
