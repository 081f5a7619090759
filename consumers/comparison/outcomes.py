"""Which values labels may have, and each one as a number."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from millstream.inference.class_answers import NO_CLASS
from millstream.pipeline.comparison_sections import EXPECTED_LABELS
from millstream.schemas.arrays import Floats
from millstream.schemas.column import NumberColumn
from millstream.schemas.written_numbers import number_of

if TYPE_CHECKING:
    from millstream.inference.class_answers import Classes
    from millstream.inference.evaluation import Task
    from millstream.schemas.column import Column

_NO_VALUE = math.nan


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The values that labels may have: any finite number in a regression, the index of a class, or else 0 and 1."""

    task: Task
    classes: Classes | None = None  # with `multiclass`

    @property
    def json_type(self) -> str:
        """The type of a label in JSON without a schema."""
        if self.task == "regression":
            return "float64"  # a `number` may be true or false, too
        return "number" if self.classes is None else "scalar"

    @property
    def expected(self) -> str:
        """What a label must be, for messages."""
        expected = EXPECTED_LABELS[self.task]
        if self.classes is None:
            return expected
        names = ", ".join(self.classes.names[:5]) + (", ..." if len(self.classes.names) > 5 else "")
        return f"{expected} ({names})"

    def are_possible(self, values: Floats) -> npt.NDArray[np.bool_]:
        """Which values are labels. NaN is none."""
        possible: npt.NDArray[np.bool_] = np.isfinite(values)
        if self.classes is not None:
            possible &= (values >= 0) & (values < len(self.classes.names)) & (values == np.floor(values))
        elif self.task == "classification":
            possible &= (values == 0) | (values == 1)
        return possible

    def numbers_of(self, column: Column) -> Floats:
        """The labels as numbers, classes as their index. NaN for a null, and for a value that is no label."""
        if self.classes is not None:
            places = np.array([self.classes.place_of(_plain(value)) for value in column.to_list()], np.float64)
            return np.where(places == NO_CLASS, _NO_VALUE, places)
        if isinstance(column, NumberColumn):
            if self.task == "regression" and column.values.dtype.kind == "b":
                return np.full(len(column), _NO_VALUE)
            numbers = column.values.astype(np.float64)
            return numbers if column.valid is None else np.where(column.valid, numbers, _NO_VALUE)
        return np.array([_number_of(value) for value in column.to_list()], np.float64)


def _plain(value: object) -> object:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _number_of(value: object) -> float:
    number = number_of(value.strip()) if isinstance(value, str) else None
    return _NO_VALUE if number is None else number
