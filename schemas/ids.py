"""Event IDs as texts, whatever the type of their field is."""

from typing import Any

import numpy as np

from millstream.schemas.column import Column, NumberColumn, StringColumn
from millstream.schemas.packed import Texts

_POSITIONAL: dict[type[np.generic], tuple[float, float]] = {np.float32: (1e-6, 1e13), np.float64: (1e-5, 1e16)}
"""From where on, and up to where, floats are written without an exponent."""


def ids_of(column: Column) -> Texts:
    """The values of a column without nulls, as texts. Raises TypeError unless they are texts, numbers or booleans."""
    match column:
        case StringColumn():
            return Texts(column.packed) if column.is_text else Texts.of([value.decode() for value in column.packed])
        case NumberColumn():
            return Texts.of(_number_texts(column))
    raise TypeError("expected texts, numbers or booleans as the events' IDs, found lists or records")


def _number_texts(column: NumberColumn) -> list[str]:
    match column.values.dtype.kind:
        case "i":
            return list(map(str, column.values.tolist()))
        case "b":
            return ["true" if value else "false" for value in column.values.tolist()]
    return [_float_text(number) for number in column.values]


def _float_text(number: np.floating[Any]) -> str:
    """The shortest text of the number. It must never change: another text is the ID of another event."""
    if np.isnan(number):
        return "NaN"
    least, most = _POSITIONAL[type(number)]
    if not number or np.isinf(number) or least <= abs(number) < most:
        return np.format_float_positional(number, trim="0")
    return np.format_float_scientific(number, trim="-", exp_digits=1)
