"""Dead letters as bytes and back: the event kept whole, with the reason and where it came from."""

from functools import lru_cache
from io import BytesIO
from typing import Any, Final, NamedTuple

import fastavro

from millstream.schemas.avro.empty import parsed_bounded
from millstream.schemas.avro.types import parsed
from millstream.schemas.avro.varint import varint
from millstream.schemas.avro.write import length, text
from millstream.schemas.records import DEAD_LETTER
from millstream.schemas.store import AvroType, Schema
from millstream.schemas.wire import HEAD_BYTES, frame, schema_id_of

# Without logical types: times are plain integers.
_SCHEMA: Final = parsed(Schema(DEAD_LETTER.reserved_id, DEAD_LETTER.name, DEAD_LETTER.definition))
_NULL, _VALUE, _END_OF_ARRAY = varint(0), varint(1), varint(0)  # branches of a union; a block of no items
_HEADER_BYTES: Final = 1024  # of the error in a header: enough to read why, little enough for any broker's limits


class DeadLetterError(ValueError):
    """A record of a dead-letter topic is no dead letter of Millstream's.

    Raised by `decode_dead_letter`. A tool that lists or replays shows the message with the record's place and goes on.
    """


class DeadLetter(NamedTuple):
    """An event that could not be processed. The schema dead-letter-v1 says the same of each field."""

    reason: str  # short code, such as undecodable
    error: str  # a sentence for people
    pipeline: str
    topic: str  # where the event was read: topic, partition, offset
    partition: int
    offset: int
    timestamp: int  # the event's Kafka timestamp, ms since the epoch; -1 where it has none
    failed_at: int  # ms since the epoch
    key: bytes | None
    value: bytes | None
    timestamp_type: str | None = None  # create_time or log_append_time, where known
    headers: tuple[tuple[str, bytes | None], ...] = ()
    attempts: int = 1  # replays included


class DeadLetterEncoder:
    """Dead letters as Avro in the wire format: schema dead-letter-v1 under the id `schema_id`.

    It writes the fields itself: a record of bytes and numbers takes fastavro twice as long, and a hostile stream is made of them.
    """

    def __init__(self, schema_id: int) -> None:
        self._head = frame(schema_id)

    def encode(self, letter: DeadLetter) -> bytes:
        """The value of the record. Never refuses an event: what the error can't show of its text is replaced by `?`."""
        parts = [
            self._head,
            _shared_text(letter.reason),
            text(_valid(letter.error)),
            _shared_text(letter.pipeline),
            _shared_text(letter.topic),
            varint(letter.partition),
            varint(letter.offset),
            _shared_time(letter.timestamp),
            _NULL if letter.timestamp_type is None else _VALUE + _shared_text(letter.timestamp_type),
            _shared_time(letter.failed_at),
            *_nullable(letter.key),
            *_nullable(letter.value),
        ]
        if letter.headers:
            parts.append(length(len(letter.headers)))
            for key, value in letter.headers:
                parts += text(_valid(key)), *_nullable(value)
        parts += _END_OF_ARRAY, varint(letter.attempts)
        return b"".join(parts)

    def headers(self, letter: DeadLetter) -> list[tuple[str, bytes]]:
        """The headers of the record: enough to sort dead letters with any Kafka tool, without reading Avro."""
        error = letter.error.encode("utf-8", "replace")
        if len(error) > _HEADER_BYTES:  # cut between characters, not inside one
            error = error[:_HEADER_BYTES].decode(errors="ignore").encode()
        return [
            ("millstream.reason", letter.reason.encode()),
            ("millstream.error", error),
            ("millstream.source.topic", letter.topic.encode()),
            ("millstream.source.partition", b"%d" % letter.partition),
            ("millstream.source.offset", b"%d" % letter.offset),
            ("millstream.pipeline", letter.pipeline.encode()),
        ]


# Many letters share these.
_shared_text = lru_cache(maxsize=256)(text)
_shared_time = lru_cache(maxsize=256)(varint)


def _valid(value: str) -> str:
    return value.encode("utf-8", "replace").decode()


def _nullable(value: bytes | None) -> tuple[bytes, ...]:
    """One Avro union of null and bytes."""
    return (_NULL,) if value is None else (_VALUE, length(len(value)), value)


def decode_dead_letter(value: bytes, writer: AvroType = DEAD_LETTER.definition) -> DeadLetter:
    """The dead letter in a record's value, written with the schema `writer`. Raises DeadLetterError."""
    try:
        schema_id = schema_id_of(value)
        body = BytesIO(value[HEAD_BYTES:])
        datum: Any = fastavro.schemaless_reader(body, parsed_bounded(Schema(schema_id, "", writer)), _SCHEMA)
    # Bytes that aren't of the schema make fastavro raise whatever its reading code stumbles over.
    except Exception as fault:
        raise DeadLetterError(_refusal(f"{type(fault).__name__}: {fault}")) from fault
    if left := body.read():
        raise DeadLetterError(_refusal(f"{len(left)} bytes too many"))
    return DeadLetter(
        **{
            **datum,
            "headers": tuple((header["key"], header["value"]) for header in datum["headers"]),
        }
    )


def _refusal(found: str) -> str:
    return (
        f"no dead letter: expected the wire format with schema {DEAD_LETTER.name}, found {found}. "
        "Is the topic one that Millstream writes dead letters to?"
    )
