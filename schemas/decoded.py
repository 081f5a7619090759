"""What decoding gives: columns of the records that could be read, and a reason for each that could not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from schemas.errors import Reason


class BadRecord(NamedTuple):
    """A record that can't be decoded, now or later."""

    row: int  # index in the values given
    reason: Reason
    error: str  # one sentence for a person


@dataclass(frozen=True, slots=True)
class Decoded:
    """A poll's records as columns."""

    frame: pl.DataFrame  # a row per decodable value, in the order of the values; only the wanted columns
    rows: npt.NDArray[np.int64]  # index of each frame row in the values given
    bad: list[BadRecord]  # the rest, ascending by row


class Decoder(Protocol):
    """Turns a poll's values into columns."""

    @property
    def columns(self) -> Mapping[str, pl.DataType]:
        """The wanted fields and their types, as every frame has them."""
        ...

    def decode(self, values: Sequence[bytes]) -> Decoded:
        """Decode values; what is wrong with a value is in the result. Raises only SchemaUnavailable (retry)."""
        ...


def merged(parts: Sequence[tuple[npt.NDArray[np.int64], Decoded]], others: Sequence[BadRecord] = ()) -> Decoded:
    """Put the parts of a poll back into the poll's order.

    Args:
        parts: at least one, each with the rows of its values in the poll, ascending.
        others: bad records that are in no part, with their rows in the poll.
    """
    bad = [
        BadRecord(int(of_part[record.row]), record.reason, record.error)
        for of_part, part in parts
        for record in part.bad
    ]
    bad = sorted([*bad, *others], key=lambda record: record.row)
    rows = np.concatenate([of_part[part.rows] for of_part, part in parts])
    if len(parts) == 1:
        return Decoded(parts[0][1].frame, rows, bad)
    order = np.argsort(rows, kind="stable")  # quick for a few ascending runs
    frame = pl.concat([part.frame for _, part in parts])
    return Decoded(frame[order], rows[order], bad)
