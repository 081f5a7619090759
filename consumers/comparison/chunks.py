"""What the join keeps: rows of a batch in one chunk, written to the changelog as one record, not one for each event."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from millstream.consumers.comparison.errors import DamagedRecordError
from millstream.schemas.comparisons import Pair

if TYPE_CHECKING:
    from collections.abc import Container

COMPARISON_ROW: Final = np.dtype(
    [
        ("id", "<u8"),  # hash of the event id
        ("position", "<i8"),  # offset in the comparison topic: tells a repeated comparison from one that was read again
        ("event_time", "<i8"),  # ms since the epoch
        ("primary", "<f8"),  # score; NaN: none
        ("shadow", "<f8"),
        ("primary_ms", "<f4"),
        ("shadow_ms", "<f4"),
        ("pair", "<u2"),  # place in the chunk's pairs
        ("agreed", "i1"),  # 1, 0, or -1 where the answers can't be compared
        ("failed", "?"),  # whether the shadow failed
    ]
)
LABEL_ROW: Final = np.dtype(
    [
        ("id", "<u8"),
        ("position", "<i8"),  # partition (upper 16 bits) and offset in the label topic
        ("value", "<f8"),
    ]
)
Rows = npt.NDArray[np.void]

_NotNegative = Annotated[int, msgspec.Meta(ge=0)]


class _Packed(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A chunk as the changelog has it. msgspec checks each value, and believes no count of more than there is."""

    kind: Literal["comparisons", "labels"]
    watermark: _NotNegative
    closed: _NotNegative
    arrived: _NotNegative
    until: _NotNegative
    pairs: list[Pair]
    halvings: dict[int, Annotated[int, msgspec.Meta(ge=0, le=64)]]
    thinned: dict[int, _NotNegative]
    rows: bytes


def rows_of(packed: bytes, dtype: np.dtype[np.void]) -> Rows:
    """The rows, as a view of `packed`. Raises DamagedRecordError."""
    if len(packed) % dtype.itemsize:
        raise DamagedRecordError(f"expected rows of {dtype.itemsize} bytes, found {len(packed)} bytes")
    return np.frombuffer(packed, dtype)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows of one batch. `number` orders a partition's chunks as they were read."""

    kind: Literal["comparisons", "labels"]
    number: int
    watermark: int  # ms since the epoch: the newest event time read, this chunk included
    closed: int  # ms since the epoch: windows that waited until here took no more when it was read
    arrived: int  # ms since the epoch: when it was read
    rows: Rows
    pairs: tuple[Pair, ...] = ()
    until: int = 0  # labels that were sifted: the watermark from which no row is wanted; 0: not sifted yet
    halvings: dict[int, int] = field(default_factory=dict)  # window -> how often it was halved so far
    thinned: dict[int, int] = field(default_factory=dict)  # window -> rows left out of this chunk by that

    def pack(self) -> bytes:
        """As the changelog has it."""
        return msgspec.msgpack.encode(
            _Packed(
                self.kind,
                self.watermark,
                self.closed,
                self.arrived,
                self.until,
                list(self.pairs),
                self.halvings,
                self.thinned,
                self.rows.tobytes(),
            )
        )

    @classmethod
    def unpack(cls, number: int, packed: bytes, latest: int) -> Chunk:
        """Undo `pack`; the rows are a view of `packed`.

        Args:
            number: of the chunk.
            packed: its record.
            latest: ms since the epoch: how new an event can be; a later one would close all windows.

        Raises:
            DamagedRecordError: this is no chunk that the job wrote.
        """
        try:
            body = msgspec.msgpack.decode(packed, type=_Packed)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise DamagedRecordError(f"no chunk: {error}") from error
        rows = rows_of(body.rows, COMPARISON_ROW if body.kind == "comparisons" else LABEL_ROW)
        if body.kind == "comparisons" and len(rows):
            times = rows["event_time"]
            if times.min() < 0 or times.max() > latest or rows["pair"].max() >= len(body.pairs):
                raise DamagedRecordError("expected rows of known pairs with event times that can be, found others")
        times_told = (body.watermark, body.closed, *body.halvings, *body.thinned)
        if not all(0 <= moment <= latest for moment in times_told):
            raise DamagedRecordError("expected times up to now, found others")
        return cls(
            kind=body.kind,
            number=number,
            watermark=body.watermark,
            closed=body.closed,
            arrived=body.arrived,
            rows=rows,
            pairs=tuple(body.pairs),
            until=body.until,
            halvings=body.halvings,
            thinned=body.thinned,
        )

    def of_pairs(self, known: Container[Pair]) -> Chunk:
        """The chunk without the rows of other pairs."""
        good = np.array([pair in known for pair in self.pairs], np.bool_)
        return self if good.all() else replace(self, rows=self.rows[good[self.rows["pair"]]])
