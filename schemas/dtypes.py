"""What a column holds: a name such as `float32` or `string`, lists of such values, or records of them. Any may be null."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class ListOf:
    """Lists of values of one type."""

    items: "Dtype"

    def __str__(self) -> str:
        return f"list({self.items})"


@dataclass(frozen=True, slots=True)
class RecordOf:
    """Records: the names of their fields and the types of these, in order."""

    fields: tuple[tuple[str, "Dtype"], ...]

    def __str__(self) -> str:
        return f"struct({{{', '.join(f'{name!r}: {dtype}' for name, dtype in self.fields)}}})"


Dtype = str | ListOf | RecordOf
"""A key of NUMBERS, `string`, `binary`, `mixed` (texts of values of several types), a list or a record."""

NUMBERS: dict[Dtype, type[np.generic]] = {
    "boolean": np.bool_,
    "int32": np.int32,
    "int64": np.int64,
    "float32": np.float32,
    "float64": np.float64,
}
"""Types whose values are in an array of numpy's: name -> numpy's type."""

FLOAT32_LIMIT = 3.4028235677973366e38
"""From here on, numbers round to infinity as float32. json_columns.c has it, too."""
