"""JSON: the columns that the C extension fills are what msgspec reads of each event."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from millstream.schemas.avro.wanted import Wanted, wanted_columns
from millstream.schemas.errors import BadFieldError
from millstream.schemas.json.columns import ColumnReader
from millstream.schemas.json.decoder import JsonDecoder
from millstream.schemas.json.each import EventReader
from millstream.schemas.json.untyped import TYPES, columns_of_types
from millstream.schemas.store import Schema
from tests.fuzz.case import Case, Counts, Wrong
from tests.fuzz.exact import ExactBuffers, exact_chained
from tests.fuzz.fates import Fate, check_neighbours, counts_of, fates_of, texts_of
from tests.fuzz.json_documents import Document, event_schema
from tests.schemas.path_cases import path_into

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
        fields = list(dict.fromkeys([*fields, *(path_into(schema, rng) for _ in range(rng.choice([0, 0, 1, 3])))]))
        about: dict[str, Any] = {"schema": schema, "fields": fields}
        if rng.random() < 0.5:  # without a schema
            about = {"types": {path_into(schema, rng): rng.choice(list(TYPES)) for _ in range(3)}}
        return Case(about, [write.event(schema) for _ in range(RECORDS)])

    def check(self, case: Case) -> Counts:
        """See Target."""
        try:
            decoder, wanted = _decoder_of(case)
        except BadFieldError:
            return Counts(0, 0)

        def fate_of(values: Sequence[bytes]) -> list[Fate]:
            return fates_of(decoder.decode(values), len(values), decoder.columns)

        fates = check_neighbours(fate_of, case.values)
        each = EventReader(wanted.fields)
        for value, (kind, said) in zip(case.values, fates, strict=True):
            found = fates_of(wanted.decoded(each.read([value])), 1, decoder.columns)[0]
            if (found if kind == "row" else found[0]) != ((kind, said) if kind == "row" else kind):
                raise Wrong(f"{value!r} is {(kind, said)}, and msgspec reads {found}")
        try:
            columns = ColumnReader(wanted.fields)
        except LookupError:  # not compiled, or arrays too deep for it
            return counts_of(fates)
        columns.buffers.__class__ = ExactBuffers
        _check_columns(case.values, fates, columns, wanted)
        return counts_of(fates)


def _decoder_of(case: Case) -> tuple[JsonDecoder, Wanted]:
    if (types := case.about.get("types")) is not None:
        return JsonDecoder.of_types(types), columns_of_types(types)
    schema = Schema(3, "event", case.about["schema"])
    return JsonDecoder.of_schema(schema, case.about["fields"]), wanted_columns(schema, case.about["fields"])


def _check_columns(values: Sequence[bytes], fates: Sequence[Fate], columns: ColumnReader, wanted: Wanted) -> None:
    """What the C extension takes is right. What it leaves to msgspec may depend on the room that its neighbours take."""
    for rows in (range(len(values)), *([row] for row in range(len(values)))):
        table, odd = columns.read(exact_chained([values[row] for row in rows]))
        found = [("row", row) for row in texts_of(wanted.table(table))]
        right = [fates[row] for row, is_odd in zip(rows, odd.tolist(), strict=True) if not is_odd]
        if found != right:
            raise Wrong(f"columns have {found}, right is {right}")
