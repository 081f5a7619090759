"""Avro: the columns that the C extension fills are what fastavro reads of each record."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from millstream.schemas.avro.columns import ColumnReader, column_reader
from millstream.schemas.avro.decoder import AvroDecoder
from millstream.schemas.avro.each import RecordReader
from millstream.schemas.avro.record_reader import record_reader
from millstream.schemas.avro.sources import sources_of
from millstream.schemas.avro.wanted import Wanted, wanted_columns
from millstream.schemas.errors import BadFieldError, BadSchemaError, Unreadable
from millstream.schemas.store import Schema
from millstream.schemas.wire import frame
from tests.fuzz.avro_bodies import Body
from tests.fuzz.avro_schemas import Evolution, SchemaMaker
from tests.fuzz.case import Case, Counts, Wrong
from tests.fuzz.damage import damaged
from tests.fuzz.exact import ExactBuffers, exact_chained
from tests.fuzz.fates import Fate, check_neighbours, counts_of, fates_of, texts_of
from tests.schemas.avro.avro_cases import READER_ID, WRITER_ID, Store
from tests.schemas.path_cases import path_into

RECORDS = 60
# What fastavro takes though it is malformed: see schemas/avro/each.py.
_ONLY_C_REFUSES = (
    "expected the byte 0 or 1 of a boolean",
    "an integer too large for its type",
    "the union's index isn't that",
    "the enum's index isn't that",
    "not of the size that it states",
)


class Avro:
    """Generated writer and reader schemas, and bodies of which half are damaged."""

    name = "avro"
    share = 0.3
    in_c = True

    def make(self, rng: Random) -> Case:
        """See Target."""
        writer = SchemaMaker(rng, only_columns=rng.random() < 0.7).record(rng.randrange(1, 7))
        reader = writer if rng.random() < 0.4 else Evolution(rng).of(writer)
        bodies = [_body(writer, rng) for _ in range(RECORDS // (1 if rng.random() < 0.7 else 6))]
        whole = [value for value, _ in bodies]
        values = [
            damaged(value, whole, rng, spans) if rng.random() < 0.5 else value
            for value, spans in (bodies if len(bodies) == RECORDS else bodies * 6)
        ]
        names = [entry["name"] for entry in reader["fields"]]
        fields = rng.sample(names, rng.randrange(1, len(names) + 1))
        fields = list(dict.fromkeys([*fields, *(path_into(reader, rng) for _ in range(rng.choice([0, 0, 1, 3])))]))
        return Case({"writer": writer, "reader": reader, "fields": fields}, values)

    def check(self, case: Case) -> Counts:
        """See Target."""
        writer, reader = (
            Schema(number, side, case.about[side]) for number, side in ((WRITER_ID, "writer"), (READER_ID, "reader"))
        )
        names = [name for name in case.about["fields"] if _can_be_column(reader, name)]
        if not names:  # a pipeline wants one at least
            return Counts(0, 0)
        decoder = AvroDecoder(Store(writer, reader), reader, names)

        def fate_of(values: Sequence[bytes]) -> list[Fate]:
            return fates_of(decoder.decode(values), len(values), decoder.columns)

        fates = check_neighbours(fate_of, case.values)
        wanted = wanted_columns(reader, names)
        try:
            sources = sources_of(writer, reader, wanted.fields)
            in_c = column_reader(frame(WRITER_ID), writer, sources)
            each = record_reader(writer, reader, sources)
        except (Unreadable, BadSchemaError):
            return counts_of(fates)
        _check_each(case.values, fates, each, wanted, in_c=in_c is not None)
        if in_c is not None:
            in_c.buffers.__class__ = ExactBuffers
            _check_columns(case.values, fates, in_c, wanted)
        return counts_of(fates)


def _body(writer: Any, rng: Random) -> tuple[bytes, list[tuple[int, int]]]:
    body = Body(rng, frame(WRITER_ID))
    body.add(writer)
    return bytes(body.out), body.spans


def _can_be_column(reader: Schema, name: str) -> bool:
    try:
        wanted_columns(reader, [name])
    except BadFieldError:
        return False
    return True


def _check_each(
    values: Sequence[bytes], fates: Sequence[Fate], each: RecordReader, wanted: Wanted, *, in_c: bool
) -> None:
    """What C takes is what fastavro takes; what it refuses fastavro refuses, too, save what that is known not to look at."""
    for value, (kind, said) in zip(values, fates, strict=True):
        if value[:5] != frame(WRITER_ID):
            continue
        one_by_one = _read(each, value, wanted)
        if one_by_one == (kind, said):
            continue
        if "row" not in {kind, one_by_one[0]}:  # in other words: what is malformed may be incompatible, too
            continue
        if not (in_c and kind == "undecodable" and any(known in said for known in _ONLY_C_REFUSES)):
            raise Wrong(f"{value.hex()} is {(kind, said)}, and one by one {one_by_one}")


def _check_columns(values: Sequence[bytes], fates: Sequence[Fate], in_c: ColumnReader, wanted: Wanted) -> None:
    """The same from buffers that end where the records and the columns do."""
    for rows in (range(len(values)), *([row] for row in range(len(values)))):
        decoded, others = in_c.read(exact_chained([values[row] for row in rows]))
        found: dict[int, Fate] = {bad.row: (bad.reason, bad.error) for bad in decoded.bad}
        rows_read = [("row", row) for row in texts_of(wanted.table(decoded.table))]
        found |= zip(decoded.rows.tolist(), rows_read, strict=True)
        right = {place: fates[row] for place, row in enumerate(rows) if place not in set(others.tolist())}
        if found != right:
            raise Wrong(f"columns have {found}, right is {right}")


def _read(reader: RecordReader, value: bytes, wanted: Wanted) -> Fate:
    found = wanted.decoded(reader.read([value]))
    return (found.bad[0].reason, found.bad[0].error) if found.bad else ("row", texts_of(found.table)[0])
