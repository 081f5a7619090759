"""JSON: the columns that the C extension fills are what msgspec reads of each event."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from millstream.schemas.avro.wanted import wanted_columns
from millstream.schemas.errors import BadFieldError
from millstream.schemas.json.columns import ColumnReader
from millstream.schemas.json.decoder import JsonDecoder
from millstream.schemas.json.each import EventReader
from millstream.schemas.store import Schema
from tests.fuzz.case import Case, Counts, Wrong
from tests.fuzz.exact import ExactBuffers, exact_packed
from tests.fuzz.fates import Fate, check_neighbours, counts_of, fates_of, texts_of
from tests.fuzz.json_documents import Document, event_schema

RECORDS = 80


class Json:
    """Generated schemas and events, some of them malformed."""

    name = "json"
    share = 0.25
    in_c = True

    def make(self, rng: Random) -> Case:
        """See Target."""
        schema = event_schema(rng)
        write = Document(rng, rng.choice([0.0, 0.2, 0.6]))
        names = [entry["name"] for entry in schema["fields"]]
        fields = rng.sample(names, rng.randrange(1, len(names) + 1))
        return Case({"schema": schema, "fields": fields}, [write.event(schema) for _ in range(RECORDS)])

    def check(self, case: Case) -> Counts:
        """See Target."""
        schema = Schema(3, "event", case.about["schema"])
        try:
            decoder = JsonDecoder.of_schema(schema, case.about["fields"])
        except BadFieldError:
            return Counts(0, 0)

        def fate_of(values: Sequence[bytes]) -> list[Fate]:
            return fates_of(decoder.decode(values), len(values), decoder.columns)

        fates = check_neighbours(fate_of, case.values)
        fields = wanted_columns(schema, case.about["fields"]).fields
        each = EventReader(fields)
        for value, (kind, said) in zip(case.values, fates, strict=True):
            found = fates_of(each.read([value]), 1, decoder.columns)[0]
            if (found if kind == "row" else found[0]) != ((kind, said) if kind == "row" else kind):
                raise Wrong(f"{value!r} is {(kind, said)}, and msgspec reads {found}")
        try:
            columns = ColumnReader(fields)
        except LookupError:  # not compiled, or arrays too deep for it
            return counts_of(fates)
        columns.buffers.__class__ = ExactBuffers
        _check_columns(case.values, fates, columns)
        return counts_of(fates)


def _check_columns(values: Sequence[bytes], fates: Sequence[Fate], columns: ColumnReader) -> None:
    """What the C extension takes is right. What it leaves to msgspec may depend on the room that its neighbours take."""
    for rows in (range(len(values)), *([row] for row in range(len(values)))):
        table, odd = columns.read(exact_packed([values[row] for row in rows]))
        found = [("row", row) for row in texts_of(table)]
        right = [fates[row] for row, is_odd in zip(rows, odd.tolist(), strict=True) if not is_odd]
        if found != right:
            raise Wrong(f"columns have {found}, right is {right}")
