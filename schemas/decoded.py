"""What decoding gives: columns of the records that could be read, and a reason for each that could not."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from millstream.schemas.arrays import Ints
from millstream.schemas.dtypes import Dtype
from millstream.schemas.errors import Reason, SchemaUnavailable
from millstream.schemas.table import Table

_LONGEST_ERROR = 500  # characters; schemas name fields at length, and libraries quote data and schemas


class BadRecord(NamedTuple):
    """A record that can't be decoded, now or later."""

    row: int  # index in the values given
    reason: Reason
    error: str  # one sentence for a person

    @classmethod
    def of(cls, row: int, reason: Reason, error: str) -> "BadRecord":
        """With as much of the error as a dead letter has room for."""
        return cls(row, reason, error[:_LONGEST_ERROR])


class Part(NamedTuple):
    """Records that were read together."""

    table: Table  # a row per record, in the order of the values; only the wanted columns
    rows: Ints  # index of each in the values given, ascending


@dataclass(frozen=True, slots=True)
class Decoded:
    """A poll's records as columns: parts of it, since records that were read in different ways are costly to put in one table."""

    parts: Sequence[Part]  # at least one; a row of the values is in one of them, or bad
    bad: list[BadRecord]  # the rest, ascending by row

    @classmethod
    def of(cls, table: Table, rows: Ints, bad: list[BadRecord]) -> "Decoded":
        """Build from one part."""
        return cls([Part(table, rows)], bad)

    @classmethod
    def concat(cls, placed: Sequence[tuple[Ints, "Decoded"]], others: Sequence[BadRecord] = ()) -> "Decoded":
        """Collect what was decoded of some of a poll's values each.

        Args:
            placed: at least one, each with the rows of its values in the poll, ascending.
            others: bad records that are in none, with their rows in the poll.
        """
        parts = [Part(part.table, of[part.rows]) for of, decoded in placed for part in decoded.parts]
        bad = [
            BadRecord(row, record.reason, record.error)
            for of, decoded in placed
            for row, record in zip(of[[record.row for record in decoded.bad]].tolist(), decoded.bad, strict=True)
        ]
        return cls([part for part in parts if len(part.rows)] or parts[:1], sorted([*bad, *others]))

    @property
    def table(self) -> Table:
        """All that could be decoded, in the order of the values."""
        together = Table.concat([part.table for part in self.parts])
        return together if len(self.parts) == 1 else together.take(self._order())

    @property
    def rows(self) -> Ints:
        """Index of each row of `table` in the values given."""
        return np.sort(np.concatenate([part.rows for part in self.parts]))

    def _order(self) -> Ints:
        return np.argsort(np.concatenate([part.rows for part in self.parts]))


@contextmanager
def rows_named(rows: Ints) -> Iterator[None]:
    """Let SchemaUnavailable name the row of a value among all, where only those of these rows are decoded."""
    try:
        yield
    except SchemaUnavailable as error:
        error.row = int(rows[error.row])
        raise


class Decoder(Protocol):
    """Turns a poll's values into columns."""

    @property
    def columns(self) -> Mapping[str, Dtype]:
        """The wanted fields and their types, as every table has them."""
        ...

    def decode(self, values: Sequence[bytes]) -> Decoded:
        """Decode values; what is wrong with a value is in the result. Raises only SchemaUnavailable (retry)."""
        ...
