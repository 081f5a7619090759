"""What the join keeps: rows of a batch in one chunk, written to the changelog as one record, not one for each event."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from schemas.comparisons import Pair, Variant

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
        pairs = [[list(pair.primary), list(pair.shadow)] for pair in self.pairs]
        rest = [
            self.watermark,
            self.closed,
            self.arrived,
            self.until,
            pairs,
            self.halvings,
            self.thinned,
            self.rows.tobytes(),
        ]
        return msgspec.msgpack.encode([self.kind, *rest])

    @classmethod
    def unpack(cls, number: int, packed: bytes) -> Chunk:
        """Undo `pack`; the rows are a view of `packed`."""
        body: list[Any] = msgspec.msgpack.decode(packed)
        kind, watermark, closed, arrived, until, pairs, halvings, thinned, rows = body
        return cls(
            kind=kind,
            number=number,
            watermark=watermark,
            closed=closed,
            arrived=arrived,
            rows=np.frombuffer(rows, COMPARISON_ROW if kind == "comparisons" else LABEL_ROW),
            pairs=tuple(Pair(Variant(*primary), Variant(*shadow)) for primary, shadow in pairs),
            until=until,
            halvings=halvings,
            thinned=thinned,
        )
