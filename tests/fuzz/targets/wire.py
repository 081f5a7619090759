"""Wire heads: any bytes are a schema ID or are refused; values of many schemas in one poll don't touch each other."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from millstream.schemas.avro.decoder import AvroDecoder
from millstream.schemas.errors import NotWireFormat
from millstream.schemas.store import Schema
from millstream.schemas.wire import frame, schema_id_of
from tests.fuzz.avro_bodies import Body, hostile_body
from tests.fuzz.case import Case, Counts, Wrong
from tests.fuzz.damage import damaged
from tests.fuzz.fates import Fate, check_neighbours, counts_of, fates_of
from tests.schemas.avro.avro_cases import Store, record

RECORDS = 60
READER = record(("x", "long"), {"name": "text", "type": "string", "default": "-"}, name="Reader")
SCHEMAS = [
    Schema(1, "reader", READER),
    Schema(2, "one by one", record(("x", "int"), ("m", {"type": "map", "values": "string"}))),
    Schema(3, "other", record(("y", "string"))),  # lacks x
    Schema(4, "wrong", {"type": "record", "name": "Event", "fields": [{"name": "x"}]}),
    Schema(2**31 - 1, "long", record(("x", "long"), ("text", "string"))),
    Schema(2**32 - 1, "none", "long"),
]
_STARTS = [
    b"",
    b"\0",
    b"\0\0\0\0",
    b'{"x": 1}',
    b"[1]",
    b"Obj\x01",
    b"\x01\0\0\0\x01",
    b"\x0e" + bytes(16),
    b"\xff" * 6,
]


class Wire:
    """Values with known, unknown and broken heads."""

    name = "wire"
    share = 0.1
    in_c = False

    def make(self, rng: Random) -> Case:
        """See Target."""
        values = [_value(rng) for _ in range(RECORDS)]
        return Case({}, [damaged(value, values, rng) if rng.random() < 0.2 else value for value in values])

    def check(self, case: Case) -> Counts:
        """See Target."""
        decoder = AvroDecoder(Store(*SCHEMAS), SCHEMAS[0], ["x", "text"])

        def fate_of(values: Sequence[bytes]) -> list[Fate]:
            return fates_of(decoder.decode(values), len(values), decoder.columns)

        fates = check_neighbours(fate_of, case.values)
        for value, (kind, said) in zip(case.values, fates, strict=True):
            if kind not in _allowed(value):
                raise Wrong(f"{value.hex()} is {(kind, said)}, expected one of {_allowed(value)}")
        return counts_of(fates)


def _value(rng: Random) -> bytes:
    if rng.random() < 0.25:
        return rng.choice(_STARTS) + rng.randbytes(rng.randrange(4))
    schema = rng.choice(SCHEMAS)
    head = frame(schema.id if rng.random() < 0.8 else rng.choice([0, 7, 2**31, 2**32 - 2]))
    if schema.id in {1, 2, 3, 2**31 - 1} and rng.random() < 0.8:
        body = Body(rng, head)
        body.add(schema.definition)
        return bytes(body.out)
    return hostile_body(rng, head)


def _allowed(value: bytes) -> set[str]:
    try:
        schema_id = schema_id_of(value)
    except NotWireFormat:
        return {"undecodable"}
    if not (len(value) >= 5 and value[0] == 0 and schema_id == int.from_bytes(value[1:5])):
        raise Wrong(f"{value.hex()} has the schema ID {schema_id}")
    if schema_id in {1, 2, 2**31 - 1}:
        return {"row", "undecodable"}
    return {"schema_incompatible"} if schema_id in {schema.id for schema in SCHEMAS} else {"unknown_schema"}
