"""Reads many Avro records at once: their values, joined, are a block of an Avro container file, which polars reads."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from millstream.schemas.avro.bounds import PADDING, Ints, Step, check
from millstream.schemas.avro.columns import Source, assemble
from millstream.schemas.avro.layout import Layouts
from millstream.schemas.avro.varint import varint
from millstream.schemas.errors import FaultyRecords, Unreadable
from millstream.schemas.packed import Packed
from millstream.schemas.wire import HEAD_BYTES

_SYNC = b"millstream-sync."  # ends a container's header and its block: 16 bytes, any will do
_HEAD = "wire head"  # no Avro field can have this name
assert len(_SYNC) == PADDING

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class BlockReader:
    """Reads wire-format values of one writer schema, all or none of them."""

    header: bytes  # of a container whose records are whole values, their heads included
    steps: list[Step]  # the check without which a malformed body would be read as its neighbour's, or make polars panic
    columns: list[str]  # that are read
    sources: list[Source]
    layouts: Layouts | None = None  # None: records of this schema have too many

    def read(self, values: Sequence[bytes], *, checked: bool = False) -> pl.DataFrame:
        """Return a row per value.

        Args:
            values: to read.
            checked: whether an earlier call found all of them well formed.

        Raises FaultyRecords with the values that are malformed, or Unreadable where at least one can't be read.
        """
        try:
            return assemble(self.sources, self._read_block(values, checked=checked), len(values))
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
            raise Unreadable("undecodable", f"the Avro body can't be read: {error}") from error

    def read_alike(self, values: Sequence[bytes]) -> pl.DataFrame | None:
        """Return the same where all values are well formed and laid out alike, which their heads are part of; else None."""
        alike = self.layouts.read(values) if self.layouts else None
        return None if alike is None else self._assembled(alike, len(values))

    def read_most(self, values: Packed) -> tuple[pl.DataFrame, Rows] | None:
        """Return a row per value that is well formed and laid out alike, and their rows; None if they are fewer than half."""
        found = self.layouts.read_most(values) if self.layouts else None
        if found is None:
            return None
        alike, rows = found
        frame = self._assembled(alike, len(rows))
        return None if frame is None else (frame, rows)

    def _assembled(self, columns: list[pl.Series], rows: int) -> pl.DataFrame | None:
        try:
            return assemble(self.sources, {column.name: column for column in columns}, rows)
        except (pl.exceptions.PolarsError, FaultyRecords):
            return None

    def _read_block(self, values: Sequence[bytes], *, checked: bool) -> dict[str, pl.Series]:
        packed = Packed.of(values)
        size = int(packed.lengths.sum())
        block = b"".join([self.header, varint(len(values)), varint(size), packed.whole, _SYNC])
        if not checked:
            self._check(block, packed.lengths, size)
        frame = pl.read_avro(BytesIO(block), columns=self.columns)
        if frame.height != len(values):
            raise Unreadable("undecodable", f"found {frame.height} records where {len(values)} are")
        return frame.to_dict()

    def _check(self, block: bytes, lengths: Ints, size: int) -> None:
        data = np.frombuffer(block, np.uint8)
        ends = lengths.cumsum() + (len(data) - PADDING - size)
        faults = check(self.steps, data, ends - lengths + HEAD_BYTES, ends)
        if faults:
            raise FaultyRecords(faults)


def container_header(fields: list[dict[str, Any]]) -> bytes:
    """Return the header of an Avro container of records with the wire format's head before these fields.

    Source: https://avro.apache.org/docs/1.12.0/specification/#object-container-files
    """
    head = {"name": _HEAD, "type": {"type": "fixed", "name": "head", "size": HEAD_BYTES}}
    schema = json.dumps({"type": "record", "name": "record", "fields": [head, *fields]}).encode()
    meta = {b"avro.schema": schema, b"avro.codec": b"null"}
    entries = b"".join(varint(len(part)) + part for item in meta.items() for part in item)
    return b"Obj\x01" + varint(len(meta)) + entries + varint(0) + _SYNC


def block_columns(sources: list[Source]) -> list[str]:
    """What to read for these sources: never nothing, since the number of rows is wanted too."""
    return list(dict.fromkeys(source.writer_name for source in sources if source.writer_name)) or [_HEAD]
