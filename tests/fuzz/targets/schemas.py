"""Schemas: whatever a file or a registry gives, only the package's own errors come of it."""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path
from random import Random

from millstream.schemas.avro.decoder import AvroDecoder
from millstream.schemas.avro.types import record_tree
from millstream.schemas.avro.wanted import wanted_columns
from millstream.schemas.directory import DirectoryStore
from millstream.schemas.errors import BadFieldError, BadSchemaError
from millstream.schemas.json.decoder import JsonDecoder
from millstream.schemas.store import Schema
from millstream.schemas.wire import frame
from tests.fuzz.bad_schemas import any_definition
from tests.fuzz.case import Case, Counts
from tests.fuzz.fates import fates_of
from tests.schemas.avro.avro_cases import READER_ID, WRITER_ID, Store, record

RECORDS = 20
_BODIES = [frame(WRITER_ID) + body for body in (b"", b"\0" * 40, b"\x02" * 9, b"\xff" * 12)]
_OTHER = record(("f0", "long"), ("f1", "string"), {"name": "f2", "type": ["null", "double"], "default": None})


class Schemas:
    """Definitions that are schemas, nearly so, or nothing of the kind."""

    name = "schemas"
    share = 0.09
    in_c = False

    def make(self, rng: Random) -> Case:
        """See Target."""
        return Case({}, [any_definition(rng) for _ in range(RECORDS)])

    def check(self, case: Case) -> Counts:
        """See Target."""
        with tempfile.TemporaryDirectory() as folder:
            good = sum(_is_schema(text, Path(folder)) for text in case.values)
        return Counts(good, len(case.values) - good)


def _is_schema(text: str, folder: Path) -> bool:
    """Whether events can be of it. Any exception but those that are said to come out is a finding."""
    (folder / "1-fuzzed.avsc").write_text(text, encoding="utf-8")
    try:
        definition = json.loads(text)
    except RecursionError:  # the stores say so
        return False
    writer, reader = Schema(WRITER_ID, "fuzzed", definition), Schema(READER_ID, "fuzzed", definition)
    try:
        DirectoryStore(folder)
        tree = record_tree(reader)
    except BadSchemaError:
        _decode(AvroDecoder(Store(writer), Schema(READER_ID, "", _OTHER), ["f2"]))
        return False
    names = [entry["name"] for entry in tree["fields"] if _can_be_column(reader, entry["name"])]
    _decode(AvroDecoder(Store(writer), Schema(READER_ID, "", _OTHER), ["f2"]))
    if names:
        _decode(AvroDecoder(Store(writer), reader, names))
        _decode(AvroDecoder(Store(Schema(WRITER_ID, "", _OTHER)), reader, names))
        with contextlib.suppress(BadFieldError):
            JsonDecoder.of_schema(reader, names).decode([b"{}", b"null", b'{"f0": 1}'])
    return True


def _decode(decoder: AvroDecoder) -> None:
    fates_of(decoder.decode(_BODIES), len(_BODIES), decoder.columns)


def _can_be_column(reader: Schema, name: str) -> bool:
    try:
        wanted_columns(reader, [name])
    except BadFieldError:
        return False
    return True
