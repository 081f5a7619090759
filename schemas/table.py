"""Columns of decoded records: polars series, which are made when somebody asks, beside the plain arrays that most ask for."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from millstream.schemas.packed import Texts

Rows = npt.NDArray[np.int64]


class Lists(NamedTuple):
    """Lists of numbers, none of which is null, nor has a null."""

    items: npt.NDArray[Any]  # end to end
    lengths: Rows


@dataclass(frozen=True)
class Column:
    """The values of a field, one a record."""

    make: Callable[[], pl.Series]
    lists: Lists | None = None  # the same, where they are lists of numbers
    texts: Texts | None = None  # the same, where they are texts and none is null

    @cached_property
    def series(self) -> pl.Series:
        """The values as polars has them."""
        return self.make()


class Table:
    """Columns of one height."""

    def __init__(self, columns: Mapping[str, Column], height: int) -> None:
        self._columns = columns
        self._height = height

    @classmethod
    def of(cls, frame: pl.DataFrame) -> "Table":
        """The columns of a frame."""
        return cls({series.name: Column(lambda series=series: series) for series in frame}, frame.height)  # type: ignore[misc]

    @classmethod
    def concat(cls, parts: Sequence["Table"]) -> "Table":
        """The records of all parts."""
        return parts[0] if len(parts) == 1 else cls.of(pl.concat([part.frame() for part in parts], rechunk=True))

    def __len__(self) -> int:
        """How many records they are of."""
        return self._height

    def __getitem__(self, name: str) -> pl.Series:
        """A column's values."""
        return self._columns[name].series

    def column(self, name: str) -> Column:
        """A column."""
        return self._columns[name]

    def frame(self, names: Sequence[str] | None = None) -> pl.DataFrame:
        """The columns of these names, or all of them."""
        return pl.DataFrame([self[name].alias(name) for name in (self._columns if names is None else names)])

    def take(self, rows: Rows) -> "Table":
        """The records at these places."""
        return Table.of(self.frame()[rows])
