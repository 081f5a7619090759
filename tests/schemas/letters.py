"""A dead letter by itself, as the encoder of many writes it."""

from __future__ import annotations

from millstream.schemas.dead_letters import DeadLetter, DeadLetterColumns, DeadLetterEncoder
from millstream.schemas.records import DEAD_LETTER

ENCODER = DeadLetterEncoder(DEAD_LETTER.reserved_id)


def encoded(letter: DeadLetter, encoder: DeadLetterEncoder = ENCODER) -> bytes:
    """The record's value."""
    return encoder.encode(DeadLetterColumns.of(letter))[0][0]


def headers_of(letter: DeadLetter) -> list[tuple[str, bytes]]:
    """The record's headers."""
    return [(name, values[0]) for name, values in ENCODER.encode(DeadLetterColumns.of(letter))[1]]
