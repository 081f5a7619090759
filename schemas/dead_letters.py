"""Encodes and decodes dead letters: the whole event, with the reason and its position."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from typing import Any, Final, NamedTuple

import fastavro
import numpy as np

from millstream.schemas.arrays import Ints
from millstream.schemas.avro.each import malformation
from millstream.schemas.avro.empty import parsed_bounded
from millstream.schemas.avro.types import parsed
from millstream.schemas.avro.varint import varint
from millstream.schemas.avro.write import (
    NULL,
    VALUE,
    bytes_pieces,
    length,
    long_pieces,
    nullable_bytes,
    nullable_pieces,
    text,
)
from millstream.schemas.decimals import decimals
from millstream.schemas.interleave import Piece, interleave
from millstream.schemas.packed import Packed, Texts
from millstream.schemas.records import DEAD_LETTER, DEAD_LETTERS, ROLLOUT_DEAD_LETTER
from millstream.schemas.rollout_choices import RolloutChoice, avro_choice
from millstream.schemas.store import AvroType, Schema
from millstream.schemas.wire import HEAD_BYTES, frame, schema_id_of

# Without logical types: times are plain integers.
_SCHEMA: Final = parsed(
    Schema(ROLLOUT_DEAD_LETTER.reserved_id, ROLLOUT_DEAD_LETTER.name, ROLLOUT_DEAD_LETTER.definition)
)
_END_OF_ARRAY = varint(0)  # a block of no items
_TIMESTAMP_TYPES: Final = {
    kind: VALUE + text(kind) if kind else NULL for kind in (None, "create_time", "log_append_time")
}
# Bytes of the error in a header: enough to see the cause, and few enough for any broker's limits.
_MAX_ERROR_HEADER_BYTES: Final = 1024

EncodedLetters = tuple[Packed, list[tuple[str, Packed]]]
"""The values of records, and their headers: each name with one content per record."""


class DeadLetterError(ValueError):
    """A record of a dead-letter topic is not a dead letter that Millstream wrote.

    Raised by `decode_dead_letter`. A tool that lists or replays shows the message with the record's place and goes on.
    """


class DeadLetter(NamedTuple):
    """An event that could not be processed. The schema dead-letter-v2 documents the fields."""

    reason: str  # a code, such as undecodable
    error: str  # a sentence for people
    pipeline: str
    topic: str  # topic, partition and offset: where the event was read
    partition: int
    offset: int
    timestamp: int  # the record's Kafka timestamp, ms since the epoch; -1: it has none
    failed_at: int  # ms since the epoch
    key: bytes | None
    value: bytes | None
    timestamp_type: str | None = None  # create_time or log_append_time; None: not known
    headers: tuple[tuple[str, bytes | None], ...] = ()
    attempts: int = 1  # including replays
    # Only pipelines with a rollout write these. None: the event failed before it had a model.
    model: str | None = None
    version: int | None = None
    variant: str | None = None
    rollout: RolloutChoice | None = None


class LetterModel(NamedTuple):
    """The model that an event failed on, in a rollout."""

    model: str
    version: int
    variant: str
    choice: RolloutChoice | None


@dataclass(frozen=True, slots=True)
class DeadLetterColumns:
    """Dead letters to write: the fields of `DeadLetter` as columns, with one value per letter."""

    pipeline: str  # the same for all letters
    failed_at: int  # the same for all letters
    reasons: Sequence[str]
    errors: Sequence[str]
    topics: Sequence[str]
    partitions: Ints
    offsets: Ints
    timestamps: Ints
    timestamp_types: Sequence[str | None]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Iterable[tuple[str, bytes | None]]]
    attempts: Ints
    models: Sequence[LetterModel | None] = ()  # with a rollout; None: the event failed before it had a model

    def __len__(self) -> int:
        """The number of letters."""
        return len(self.reasons)

    @classmethod
    def of(cls, letter: DeadLetter) -> "DeadLetterColumns":
        """The columns of a single letter."""
        return cls(
            letter.pipeline,
            letter.failed_at,
            [letter.reason],
            [letter.error],
            [letter.topic],
            np.array([letter.partition], np.int64),
            np.array([letter.offset], np.int64),
            np.array([letter.timestamp], np.int64),
            [letter.timestamp_type],
            [letter.key],
            [letter.value],
            [letter.headers],
            np.array([letter.attempts], np.int64),
            [_model_of(letter)],
        )

    def part(self, start: int, stop: int) -> "DeadLetterColumns":
        """A range of the letters."""
        columns = {name: getattr(self, name) for name in self.__slots__}
        of_all = {"pipeline", "failed_at"}
        return DeadLetterColumns(**{n: value if n in of_all else value[start:stop] for n, value in columns.items()})

    def letter(self, row: int) -> DeadLetter:
        """One of the letters."""
        model = self.models[row] if self.models else None
        return DeadLetter(
            reason=self.reasons[row],
            error=self.errors[row],
            pipeline=self.pipeline,
            topic=self.topics[row],
            partition=int(self.partitions[row]),
            offset=int(self.offsets[row]),
            timestamp=int(self.timestamps[row]),
            failed_at=self.failed_at,
            key=self.keys[row],
            value=self.values[row],
            timestamp_type=self.timestamp_types[row],
            headers=tuple(self.headers[row]),
            attempts=int(self.attempts[row]),
            model=None if model is None else model.model,
            version=None if model is None else model.version,
            variant=None if model is None else model.variant,
            rollout=None if model is None else model.choice,
        )


class DeadLetterEncoder:
    """Encodes dead letters as Avro in the wire format.

    The schema with the ID `schema_id` is dead-letter-v2 for pipelines with a rollout, otherwise dead-letter-v1. It encodes many
    letters per call, column by column, because a hostile stream consists of bad events.
    """

    def __init__(self, schema_id: int, *, rollout: bool = False) -> None:
        self._head = frame(schema_id)
        self._rollout = rollout

    def encode(self, letters: DeadLetterColumns) -> EncodedLetters:
        """The values and the headers of the records.

        With the headers, any Kafka tool can sort dead letters without reading Avro. No event is refused: characters that UTF-8
        can't encode become `?`.
        """
        reasons, errors, topics = _utf8(letters.reasons), _utf8(letters.errors), _utf8(letters.topics)
        pieces = [
            self._head,
            *bytes_pieces(reasons),
            *bytes_pieces(errors),
            text(letters.pipeline),
            *bytes_pieces(topics),
            *_longs(letters.partitions),
            *_longs(letters.offsets),
            *_longs(letters.timestamps),
            Packed.of(list(map(_TIMESTAMP_TYPES.__getitem__, letters.timestamp_types))),
            varint(letters.failed_at),
            *nullable_pieces(letters.keys),
            *nullable_pieces(letters.values),
            Packed.of([_headers(headers) if headers else _END_OF_ARRAY for headers in letters.headers]),
            *_longs(letters.attempts),
        ]
        if self._rollout:
            models = letters.models or [None] * len(letters)
            pieces.append(Packed.of(list(map(_encoded_model, models))))
        headers = [
            ("millstream.reason", reasons),
            ("millstream.error", _shortened(errors)),
            ("millstream.source.topic", topics),
            ("millstream.source.partition", decimals(letters.partitions)),
            ("millstream.source.offset", decimals(letters.offsets)),
            ("millstream.pipeline", Packed.of([letters.pipeline.encode()] * len(letters))),
        ]
        return interleave(pieces, len(letters)), headers


def _model_of(letter: DeadLetter) -> LetterModel | None:
    if letter.model is None or letter.version is None or letter.variant is None:
        return None
    return LetterModel(letter.model, letter.version, letter.variant, letter.rollout)


def _encoded_model(model: LetterModel | None) -> bytes:
    """The fields of dead-letter-v2 that dead-letter-v1 lacks."""
    if model is None:
        return NULL * 4
    named = VALUE + text(model.model) + VALUE + varint(model.version) + VALUE + text(model.variant)
    return named + avro_choice(model.choice)


def _utf8(texts: Sequence[str]) -> Packed:
    try:
        return Texts.of(texts).utf8
    except UnicodeEncodeError:
        return Packed.of([text.encode("utf-8", "replace") for text in texts])


def _longs(numbers: Ints) -> list[Piece]:
    return long_pieces(numbers.reshape(-1, 1))


def _headers(headers: Iterable[tuple[str, bytes | None]]) -> bytes:
    """An Avro array of an event's headers."""
    items = [text(_valid(key)) + nullable_bytes(value) for key, value in headers]
    return b"".join([length(len(items)), *items, _END_OF_ARRAY])


def _valid(value: str) -> str:
    return value.encode("utf-8", "replace").decode()


def _shortened(errors: Packed) -> Packed:
    """As much of each error as a header has room for, cut between characters, not inside one."""
    if errors.longest <= _MAX_ERROR_HEADER_BYTES:
        return errors
    return Packed.of([error[:_MAX_ERROR_HEADER_BYTES].decode(errors="ignore").encode() for error in errors])


def decode_dead_letter(value: bytes, writer: AvroType | None = None) -> DeadLetter:
    """The dead letter in a record's value. Raises DeadLetterError.

    Args:
        value: in the wire format.
        writer: the schema that it was written with. None: by its reserved ID; dead-letter-v1 if it has another ID.
    """
    try:
        schema_id = schema_id_of(value)
        writer = DEAD_LETTERS.get(schema_id, DEAD_LETTER).definition if writer is None else writer
        body = BytesIO(value[HEAD_BYTES:])
        datum: Any = fastavro.schemaless_reader(body, _parsed(schema_id, json.dumps(writer)), _SCHEMA)
    # fastavro raises exceptions of any class if the bytes don't follow the schema.
    except Exception as fault:
        raise DeadLetterError(_refusal(malformation(fault))) from fault
    if left := body.read():
        raise DeadLetterError(_refusal(f"{len(left)} bytes too many"))
    choice = datum["rollout"]
    return DeadLetter(
        **{
            **datum,
            "headers": tuple((header["key"], header["value"]) for header in datum["headers"]),
            "rollout": None if choice is None else RolloutChoice(**choice),
        }
    )


@lru_cache(maxsize=16)
def _parsed(schema_id: int, writer: str) -> Any:
    """A writer's schema, given as JSON: to parse it takes 20 times as long as to decode a dead letter."""
    return parsed_bounded(Schema(schema_id, "", json.loads(writer)))


def _refusal(found: str) -> str:
    return (
        f"no dead letter: expected the wire format with schema {DEAD_LETTER.name}, found {found}. "
        "Is the topic one that Millstream writes dead letters to?"
    )
