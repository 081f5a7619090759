"""A hostile producer: a stream of good vector events, mixed with records that try to stop a worker."""

from __future__ import annotations

import io
import json
import random
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import fastavro
from confluent_kafka.schema_registry import Schema as RegistrySchema

from benchmarks.load import VECTOR_SCHEMA
from millstream.schemas.wire import HEAD_BYTES, frame
from tests.consumers.service import VECTOR_INPUT, vector_service
from tests.faults.load import KEYS, Event, vectors
from tests.faults.service import change
from tests.fuzz.damage import zigzag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from confluent_kafka.schema_registry import SchemaRegistryClient

    from tests.broker.choice import Broker
    from tests.consumers.service import Service

DEADLINE_HEADER = "until"
MAX_AGE = "240h"  # events of `vectors` are older, so they get the time of the test
PREDICTED = "predicted"
_WRITER = fastavro.parse_schema(VECTOR_SCHEMA)
_MOST = 2**63 - 1


class Record(NamedTuple):
    """A record to send, and the result that it must have."""

    fate: str  # `predicted`, or the reason of its dead letter
    value: bytes
    headers: tuple[tuple[str, str | bytes | None], ...] = ()
    key: bytes | None = None  # None: a usual one


def record_of(*fields: Any) -> dict[str, Any]:
    """A record schema of these types."""
    entries = [{"name": f"f{place}", "type": of_type} for place, of_type in enumerate(fields)]
    return {"type": "record", "name": "VectorEvent", "namespace": "hostile", "fields": entries}


def doubling(levels: int) -> dict[str, Any]:
    """A schema of a few hundred bytes per level. Written out in full, its size doubles with each level."""
    inner: Any = "int"
    for level in range(levels):
        fields = [{"name": "a", "type": inner}, {"name": "b", "type": inner if level == 0 else f"L{level - 1}"}]
        inner = {"type": "record", "name": f"L{level}", "fields": fields}
    return record_of(inner)


def nested(depth: int) -> dict[str, Any]:
    """Arrays within arrays."""
    inner: Any = "float"
    for _ in range(depth):
        inner = {"type": "array", "items": inner}
    return record_of(inner)


SCHEMAS: dict[str, str] = {
    "doubling": json.dumps(doubling(24)),
    "nested": json.dumps(nested(200)),
    "recursive": json.dumps(
        record_of({"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null", "N"]}]})
    ),
    "nulls": json.dumps(record_of({"type": "array", "items": "null"})),
    "huge_fixed": json.dumps(record_of({"type": "array", "items": {"type": "fixed", "name": "F", "size": 2**30}})),
    "no_record": json.dumps({"type": "array", "items": "float"}),
    "other_fields": json.dumps(record_of("string", "long")),
}
"""Schemas whose records can't become events, by name."""
JSON_SCHEMA = '{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}'


def register(client: SchemaRegistryClient, subject: str) -> dict[str, int]:
    """Register the good schema under `subject`, and each hostile one under a subject of its own; returns their IDs."""
    good = int(client.register_schema(subject, RegistrySchema(json.dumps(VECTOR_SCHEMA), "AVRO")))
    ids = {
        name: int(client.register_schema(f"{subject}-{name}", RegistrySchema(text, "AVRO")))
        for name, text in SCHEMAS.items()
    }
    ids["json_schema"] = int(client.register_schema(f"{subject}-json", RegistrySchema(JSON_SCHEMA, "JSON")))
    return {"good": good, **ids}


def hostile_service(
    folder: Path, kafka: Broker, client: SchemaRegistryClient, url: str, **sections: Any
) -> tuple[Service, dict[str, int]]:
    """A pipeline for the stream, and the IDs of the schemas in the stream.

    Its events have no ids of their own, for those may be anything: they are known by their places.
    """
    service = vector_service(folder, kafka, schemas={"registry": {"url": url}}, **sections)
    subject = f"{service.inputs[0]}-value"
    taken: dict[str, Any] = {name: value for name, value in VECTOR_INPUT.items() if name != "event_id"}
    taken |= {"schema": subject, "max_age": MAX_AGE, "deadline_header": DEADLINE_HEADER}
    change(service, input={"topics": list(service.inputs), **taken})
    return service, register(client, subject)


def _body(event_id: str, event_time: int, x: list[float]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, _WRITER, {"id": event_id, "event_time": event_time, "x": x})
    return out.getvalue()


class Hostile:
    """Makes hostile records of every kind, each as likely as any other."""

    def __init__(self, ids: Mapping[str, int], now: int, chance: random.Random, *, huge: bool) -> None:
        """Args:
        ids: of the registered schemas, by name.
        now: ms since the epoch, the time of good events.
        chance: what is random.
        huge: whether to make those, too, that are hostile by their size.
        """
        self._ids = ids
        self._now = now
        self._chance = chance
        self._head = frame(ids["good"])
        self._kinds: list[Callable[[], Record]] = [
            *(self._wire, self._unknown_schema, self._bad_schema, self._cut, self._claims, self._random_body),
            *(self._too_many_bytes, self._not_utf8, self._wrong_length, self._not_a_number),
            *(self._deadline, self._event_time, self._blocks),
        ]
        if huge:
            self._kinds += [self._headers, self._large, self._large_key, self._large_header]

    def next(self) -> Record:
        """A record."""
        return self._chance.choice(self._kinds)()

    def good(self) -> bytes:
        """A valid event."""
        return self._head + _body("event", self._now, [self._chance.gauss(0, 1) for _ in range(32)])

    def _wire(self) -> Record:
        """Values that aren't in the wire format."""
        values = [
            b"\x00",
            b"\x01\x00\x00\x00\x01",
            b'{"id": 1}',
            b"Obj\x01" + bytes(60),
            b"\x00\x00\x00\x00",
            b"\xff" * 300,
        ]
        return Record("undecodable", self._chance.choice(values))

    def _unknown_schema(self) -> Record:
        """IDs that no registry assigns, and many IDs that this registry doesn't know."""
        schema_id = self._chance.choice([2**32 - 1, 2**31, 2**31 - 1, self._chance.randrange(10**6, 2**31)])
        return Record("unknown_schema", frame(schema_id) + self.good()[HEAD_BYTES:])

    def _bad_schema(self) -> Record:
        name = self._chance.choice([name for name in self._ids if name != "good"])
        return Record(
            "schema_incompatible", frame(self._ids[name]) + self._chance.randbytes(self._chance.randrange(100))
        )

    def _cut(self) -> Record:
        good = self.good()
        return Record("undecodable", good[: self._chance.randrange(HEAD_BYTES, len(good))])

    def _too_many_bytes(self) -> Record:
        return Record("undecodable", self.good() + self._chance.randbytes(self._chance.randrange(1, 200)))

    def _claims(self) -> Record:
        """A length or a count beyond the record's end."""
        claim = self._chance.choice([2**31, 2**34, 2**40, 2**61, _MOST, -1, -(2**62), 2**70])
        as_text = self._head + zigzag(claim) + bytes(100)
        as_array = self._head + zigzag(1) + b"e" + zigzag(self._now) + zigzag(claim) + bytes(100)
        return Record("undecodable", self._chance.choice([as_text, as_array]))

    def _blocks(self) -> Record:
        """An array with endless blocks, or with blocks of another size than stated."""
        start = self._head + zigzag(1) + b"e" + zigzag(self._now)
        one = struct.pack("<f", 1.0)
        many = start + (zigzag(1) + one) * 3000 + b"\x00"
        wrong = start + zigzag(-32) + zigzag(_MOST) + one * 32 + b"\x00"
        return Record("refused", self._chance.choice([many, wrong]))

    def _random_body(self) -> Record:
        return Record("refused", self._head + self._chance.randbytes(self._chance.randrange(40)))

    def _not_utf8(self) -> Record:
        """Text that isn't UTF-8, in a field that the pipeline doesn't use."""
        return Record(PREDICTED, self.good().replace(b"event", b"\xff\xfe\xed\xa0\x80"))

    def _wrong_length(self) -> Record:
        count = self._chance.choice([0, 1, 31, 33, 5000])
        return Record("unfit", self._head + _body("event", self._now, [0.5] * count))

    def _not_a_number(self) -> Record:
        x = [0.5] * 31 + [self._chance.choice([float("nan"), float("inf"), float("-inf")])]
        return Record("unfit", self._head + _body("event", self._now, x))

    def _large(self) -> Record:
        """Large events, some as large as a topic accepts. They mostly cost time in the broker and the network."""
        size = 900_000 if self._chance.randrange(50) == 0 else 20_000
        return Record("refused", self._head + self._chance.randbytes(size))

    def _deadline(self) -> Record:
        """Invalid deadlines: the event is predicted."""
        stated = self._chance.choice([b"9" * 5000, b"0" * 5000, b"-5", b"", b"\xff", b"1e400", b" 7"])
        return Record(PREDICTED, self.good(), ((DEADLINE_HEADER, stated),))

    def _event_time(self) -> Record:
        """The last and the first ms of the years 1 to 9999, and times beyond."""
        first, last = -62_135_596_800_000, 253_402_300_799_999
        at, fate = self._chance.choice(
            [
                *((last, PREDICTED), (first, "expired"), (0, "expired")),
                *((time, "unfit") for time in (last + 1, first - 1, _MOST, -(2**63))),
            ]
        )
        return Record(fate, self._head + _body("event", at, [0.5] * 32))

    def _headers(self) -> Record:
        """Many headers, large ones, empty ones, and invalid tracing headers, which are copied to predictions."""
        several = (
            *((f"h{number}", b"v") for number in range(200)),
            ("large", self._chance.randbytes(20_000)),
            ("", None),
        )
        tracing = (("traceparent", self._chance.randbytes(100)), ("baggage", None), ("tracestate", b""))
        return Record(PREDICTED, self.good(), self._chance.choice([several, tracing]))

    def _large_key(self) -> Record:
        """A key that is small when compressed. Uncompressed, it is too large for the output topic together with a prediction.

        Each its own: a dead letter without its key may be in any partition.
        """
        size = 3_000_000 if self._chance.randrange(20) == 0 else 30_000
        return Record(
            PREDICTED if size < 10**6 else "prediction_too_large",
            self.good(),
            key=bytes(size) + self._chance.randbytes(8),
        )

    def _large_header(self) -> Record:
        """Like `_large_key`, with a header that is copied to predictions."""
        size = 3_000_000 if self._chance.randrange(20) == 0 else 30_000
        carried = (("baggage", bytes(size)),)
        return Record(PREDICTED if size < 10**6 else "prediction_too_large", self.good(), carried)


def hostile_stream(seed: int, ids: Mapping[str, int], now: int, share: float, *, huge: bool = True) -> Iterator[Event]:
    """Endless events; `share` of them are hostile. An event's ID starts with its fate."""
    chance = random.Random(seed)
    records = Hostile(ids, now, chance, huge=huge)
    # Good events come from `vectors`. Their times are of another year, so they are replaced.
    head, time = frame(ids["good"]), zigzag(now)
    for number, event in enumerate(vectors(seed)):
        key = b"key-%d" % chance.randrange(KEYS)
        if chance.random() < share:
            fate, value, headers, own_key = records.next()
            yield Event(f"{fate}:{number}", own_key or key, value, headers)
        else:
            yield Event(
                f"{PREDICTED}:{number}", key, head + event.value[HEAD_BYTES:22] + time + event.value[22 + len(time) :]
            )
