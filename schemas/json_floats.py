"""Floats for JSON, which has no NaN and no infinity: they become the strings "NaN", "Infinity" and "-Infinity"."""

from typing import Any

import numpy as np
import numpy.typing as npt


def json_float(value: float) -> float | str:
    """The same value if it is finite; else its string."""
    return json_floats(np.array([value])).tolist()[0]  # type: ignore[no-any-return]


def json_floats(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same values if all are finite or no floats. Otherwise objects, among them the strings."""
    if values.dtype.kind != "f" or np.isfinite(values).all():
        return values
    objects = values.astype(object)
    objects[np.isnan(values)] = "NaN"
    objects[np.isposinf(values)] = "Infinity"
    objects[np.isneginf(values)] = "-Infinity"
    return objects
