"""Chunks: the rows of one batch that the join keeps. The changelog has one record for each chunk, not one for each event."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import numpy as np
import numpy.typing as npt

from millstream.consumers.comparison.errors import DamagedRecordError
from millstream.schemas.comparisons import Pair

if TYPE_CHECKING:
    from collections.abc import Container

    from millstream.inference.class_answers import Classes

COMPARISON_ROW: Final = np.dtype(
    [
        ("id", "<u8"),  # hash of the event id
        ("position", "<i8"),  # offset in the comparison topic: a comparison that is read again has the same one
        ("event_time", "<i8"),  # ms since the epoch
        ("primary", "<f8"),  # score; NaN: no score
        ("shadow", "<f8"),
        ("primary_ms", "<f4"),
        ("shadow_ms", "<f4"),
        ("pair", "<u2"),  # index into the chunk's pairs
        ("agreed", "i1"),  # 1, 0, or -1 if the results can't be compared
        ("failed", "?"),  # whether the shadow failed
    ]
)
LABELS: Final = "labels"
"""The kind of the chunks with labels."""
LABEL_ROW: Final = np.dtype(
    [
        ("id", "<u8"),
        ("position", "<i8"),  # partition (upper 16 bits) and offset in the label topic
        ("value", "<f8"),  # the index of the class, if classes are compared
    ]
)
Rows = npt.NDArray[np.void]


def comparison_row(classes: Classes | None) -> np.dtype[np.void]:
    """The type of a comparison's row; with classes, also what each model predicted.

    With three classes, a row has 32 bytes more than one without.
    """
    if classes is None:
        return COMPARISON_ROW
    answers = [(f"{side}_class", "<i4") for side in ("primary", "shadow")]  # index of a class, OTHER_CLASS or NO_CLASS
    # NaN: not known. All of an event's are NaN, or none is.
    scores = [(f"{side}_probabilities", "<f4", (classes.probabilities,)) for side in ("primary", "shadow")]
    return np.dtype([*COMPARISON_ROW.descr, *answers, *scores])


def kind_of(classes: Classes | None) -> str:
    """The kind of the chunks with comparisons. Rows of other classes have another meaning, so their chunks have another kind."""
    if classes is None:
        return "comparisons"
    return f"comparisons/{zlib.crc32(msgspec.msgpack.encode(classes.names)):08x}"


_NotNegative = Annotated[int, msgspec.Meta(ge=0)]


class _Packed(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A chunk as the changelog stores it. msgspec checks each value, and rejects a length beyond the end of the record."""

    kind: str
    watermark: _NotNegative
    closed: _NotNegative
    arrived: _NotNegative
    until: _NotNegative
    pairs: list[Pair]
    halvings: dict[int, Annotated[int, msgspec.Meta(ge=0, le=64)]]
    thinned: dict[int, _NotNegative]
    rows: bytes
    deleted: _NotNegative = 0


def rows_of(packed: bytes, dtype: np.dtype[np.void]) -> Rows:
    """The rows, as a view of `packed`. Raises DamagedRecordError."""
    if len(packed) % dtype.itemsize:
        raise DamagedRecordError(f"expected rows of {dtype.itemsize} bytes, found {len(packed)} bytes")
    return np.frombuffer(packed, dtype)


@dataclass(frozen=True, slots=True)
class Chunk:
    """The rows of one batch. `number` orders a partition's chunks by when they were read."""

    kind: str  # `LABELS`, or what `kind_of` returns
    number: int
    watermark: int  # ms since the epoch: the newest event time read so far, this chunk included
    closed: int  # ms since the epoch: windows whose wait ended by this time were closed when the chunk was read
    arrived: int  # ms since the epoch: when the chunk was read
    rows: Rows
    pairs: tuple[Pair, ...] = ()
    until: int = 0  # of sifted labels: the watermark at which the last row can be deleted; 0: not sifted yet
    halvings: dict[int, int] = field(default_factory=dict)  # window -> how often it was halved so far
    thinned: dict[int, int] = field(default_factory=dict)  # window -> rows of this chunk that halving removed
    deleted: int = 0  # ms since the epoch: windows that were due for deletion by this time are deleted

    def pack(self) -> bytes:
        """Encode the chunk for the changelog."""
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
                self.deleted,
            )
        )

    @classmethod
    def unpack(cls, number: int, packed: bytes, latest: int, classes: Classes | None = None) -> Chunk:
        """Undo `pack`; the rows are a view of `packed`.

        Args:
            number: the chunk's number.
            packed: its record.
            latest: the newest event time that is possible, ms since the epoch. A later one would close all windows.
            classes: those of the models, if they are compared.

        Raises:
            DamagedRecordError: the job didn't write this record.
        """
        try:
            body = msgspec.msgpack.decode(packed, type=_Packed)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise DamagedRecordError(f"not a chunk: {error}") from error
        if body.kind not in {LABELS, kind_of(classes)}:
            raise DamagedRecordError(
                "expected labels or comparisons of the classes that the pipeline file names, found others"
            )
        rows = rows_of(body.rows, LABEL_ROW if body.kind == LABELS else comparison_row(classes))
        if body.kind != LABELS and len(rows):
            times = rows["event_time"]
            if times.min() < 0 or times.max() > latest or rows["pair"].max() >= len(body.pairs):
                raise DamagedRecordError("expected rows of known pairs with possible event times, found others")
        other_times = (body.watermark, body.closed, body.deleted, *body.halvings, *body.thinned)
        if not all(0 <= time <= latest for time in other_times):
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
            deleted=body.deleted,
        )

    def of_pairs(self, known: Container[Pair]) -> Chunk:
        """The chunk with only the rows of known pairs."""
        good = np.array([pair in known for pair in self.pairs], np.bool_)
        return self if good.all() else replace(self, rows=self.rows[good[self.rows["pair"]]])
