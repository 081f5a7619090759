"""Decoded records as columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millstream.schemas.arrays import Ints
from millstream.schemas.column import Column


@dataclass(frozen=True, slots=True)
class Table:
    """Columns of one height, at least one."""

    columns: Mapping[str, Column]

    @classmethod
    def concat(cls, parts: Sequence["Table"]) -> "Table":
        """The records of all parts; as it is where there is one."""
        first, *others = parts
        if not others:
            return first
        return cls({name: column.joined([part[name] for part in others]) for name, column in first.columns.items()})

    def __len__(self) -> int:
        """How many records they are of."""
        return len(next(iter(self.columns.values())))

    def __getitem__(self, name: str) -> Column:
        """A column."""
        return self.columns[name]

    def select(self, names: Sequence[str]) -> "Table":
        """The columns of these names."""
        return Table({name: self.columns[name] for name in names})

    def take(self, rows: Ints) -> "Table":
        """The records at these places, in any order, copied."""
        return Table({name: column.take(rows) for name, column in self.columns.items()})
