"""What decoding gives: columns of the records that could be read, and a reason for each that could not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from schemas.errors import Reason


@dataclass(frozen=True, slots=True)
class BadRecord:
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


def merged(parts: Sequence[tuple[npt.NDArray[np.int64], Decoded]]) -> Decoded:
    """Put the parts of a poll, each with the rows that its values had, back into the poll's order."""
    rows = np.concatenate([of_part[part.rows] for of_part, part in parts])
    order = np.argsort(rows)
    bad = [
        BadRecord(int(of_part[record.row]), record.reason, record.error)
        for of_part, part in parts
        for record in part.bad
    ]
    frame = pl.concat([part.frame for _, part in parts])
    return Decoded(frame[order], rows[order], sorted(bad, key=lambda record: record.row))
