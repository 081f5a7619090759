"""Records: what the C extension copies of librdkafka's messages is what confluent-kafka's objects say, one by one."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

from millstream.consumers.records import Records
from millstream.consumers.source.fetched import LIBRARY
from tests.consumers.in_memory import MemoryRecord
from tests.consumers.source.fetched_messages import TOPICS, Library, Message
from tests.consumers.test_records import rows, said
from tests.fuzz.case import Case, Counts, Wrong
from tests.fuzz.damage import EDGES, SPECIAL

RECORDS = 100


class RecordColumns:
    """Messages with any key, value, headers and timestamps."""

    name = "records"
    share = 0.15
    in_c = True

    def make(self, rng: Random) -> Case:
        """See Target."""
        return Case({}, [_message(rng) for _ in range(rng.choice([1, 3, RECORDS, RECORDS]))])

    def check(self, case: Case) -> Counts:
        """See Target."""
        messages = [Message(**{**value, "headers": list(map(tuple, value["headers"]))}) for value in case.values]
        good = [message for message in messages if not message.error]
        one_by_one = [_as_record(message) for message in good]
        right = [said(record) for record in one_by_one]
        _same("one by one", rows(Records.of(one_by_one)), right)
        if LIBRARY.exists():
            library = Library(messages)
            records, errors = library.copier().take(library.addresses)
            if library.given_back != library.addresses.tolist():
                raise Wrong("a message was not given back to librdkafka, or twice")
            _same("columns", rows(records.take(errors == 0)), right)
            _same("alone", [row for message in good for row in _alone(message)], right)
            half = np.arange(len(records)) % 2 == 0
            kept = [row for row, own in zip(rows(records), half, strict=True) if own]
            _same("every second", rows(records.take(half)), kept)
            parts = [records.take(half), records.take(~half)]
            _same("end to end", rows(Records.concat(parts)), [row for part in parts for row in rows(part)])
        return Counts(len(good), len(messages) - len(good))


def _message(rng: Random) -> dict[str, Any]:
    return {
        "topic": rng.choice(TOPICS),
        "partition": rng.choice([0, 1, 2, 2**31 - 1]),
        "offset": rng.choice([0, 5, 2**31, 2**63 - 1, rng.randrange(10**9)]),
        "timestamp": rng.choice([-1, 0, 1_700_000_000_000, 2**63 - 1, -(2**63), rng.choice(EDGES)]),
        "timestamp_type": rng.randrange(3),
        "leader_epoch": rng.choice([-1, 0, 2**31 - 1]),
        "key": _bytes(rng),
        "value": _bytes(rng),
        "headers": [(_name(rng), _bytes(rng)) for _ in range(rng.choice([0, 0, 1, 2, 40]))],
        "error": rng.choice([0, 0, 0, 0, 0, -191, 3]),
    }


def _bytes(rng: Random) -> bytes | None:
    match rng.randrange(8):
        case 0:
            return None
        case 1:
            return b""
        case 2:
            return rng.choice(SPECIAL)
        case 3:
            return rng.randbytes(rng.choice([1, 15, 16, 17, 255, 4096]))
    return rng.randbytes(rng.randrange(12))


def _name(rng: Random) -> bytes:
    """A header's name: any bytes without a zero, which ends it for librdkafka."""
    return (_bytes(rng) or b"trace").replace(b"\0", b"\x01")


def _as_record(message: Message) -> MemoryRecord:
    return MemoryRecord(
        message.offset,
        message.value,
        (message.topic, message.partition),
        (message.timestamp_type, message.timestamp),
        message.key,
        [(name.decode(errors="replace"), value) for name, value in message.headers],
    )


def _alone(message: Message) -> list[tuple[Any, ...]]:
    library = Library([message])
    return rows(library.copier().take(library.addresses)[0])


def _same(what: str, found: Any, right: Any) -> None:
    for row, (one, other) in enumerate(zip(found, right, strict=True)):
        if one != other:
            raise Wrong(f"{what}: record {row} is {one}, right is {other}")
