import contextlib
from io import BytesIO
from typing import Any

import fastavro
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.schemas.dead_letters import DeadLetter, DeadLetterColumns, DeadLetterError, decode_dead_letter
from millstream.schemas.packed import Packed
from millstream.schemas.records import DEAD_LETTER
from tests.schemas.letters import ENCODER, encoded, headers_of

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
LONGS = st.integers(-(2**63), 2**63 - 1)
BYTES = st.none() | st.binary()
LETTERS = st.builds(
    DeadLetter,
    reason=TEXTS,
    error=TEXTS,
    pipeline=TEXTS,
    topic=TEXTS,
    partition=st.integers(0, 2**31 - 1),
    offset=LONGS,
    timestamp=LONGS,
    timestamp_type=st.none() | st.sampled_from(["create_time", "log_append_time"]),
    failed_at=LONGS,
    key=BYTES,
    value=BYTES,
    headers=st.lists(st.tuples(TEXTS, BYTES), max_size=3).map(tuple),
    attempts=st.integers(1, 9),
    **dict.fromkeys(("model", "version", "variant", "rollout"), st.none()),  # dead-letter-v1 lacks them
)
LETTER = DeadLetter(
    reason="undecodable",
    error="the record ends early",
    pipeline="flights-delay",
    topic="flights-departures",
    partition=3,
    offset=41,
    timestamp=-1,
    timestamp_type=None,
    failed_at=1_378_012_500_000,
    key=None,
    value=b"\x00\x00\x00\x00\x01\xff",
    headers=(("traceparent", b"00-ab"), ("traceparent", None)),
)


@given(LETTERS)
def test_decoding_gives_back_the_whole_letter(letter: DeadLetter) -> None:
    assert decode_dead_letter(encoded(letter)) == letter


@given(st.lists(LETTERS, min_size=1, max_size=5), st.booleans())
def test_many_are_written_as_each_by_itself(letters: list[DeadLetter], packed: bool) -> None:
    together = [letter._replace(pipeline="p", failed_at=0) for letter in letters]
    ones = [DeadLetterColumns.of(letter) for letter in together]
    columns: dict[str, Any] = {
        name: [value for one in ones for value in getattr(one, name)]
        for name in DeadLetterColumns.__slots__
        if name not in {"pipeline", "failed_at"}
    }
    numbers = {name: np.array(columns[name], np.int64) for name in ("partitions", "offsets", "timestamps", "attempts")}
    if packed and None not in columns["values"]:
        columns["values"] = Packed.of(columns["values"])
    many = DeadLetterColumns(**{"pipeline": "p", "failed_at": 0, **columns, **numbers})
    values, headers = ENCODER.encode(many)
    assert list(values) == list(map(encoded, together))
    if min(columns["offsets"]) >= 0:
        by_name = [(name, list(column)) for name, column in headers]
        of_each = [dict(headers_of(letter)) for letter in together]
        assert by_name == [(name, [own[name] for own in of_each]) for name, _ in by_name]


def test_any_avro_reader_reads_it() -> None:
    value = encoded(LETTER)
    assert value[:5] == b"\x00\x00\x0f\x42\x42"
    read: Any = fastavro.schemaless_reader(BytesIO(value[5:]), fastavro.parse_schema(DEAD_LETTER.definition), None)
    assert read["failed_at"].isoformat() == "2013-09-01T05:15:00+00:00"
    assert read["value"] == LETTER.value
    assert read["headers"] == [{"key": "traceparent", "value": b"00-ab"}, {"key": "traceparent", "value": None}]


def test_error_with_half_a_character_is_still_written() -> None:
    letter = LETTER._replace(error="found '\ud83d'")
    assert decode_dead_letter(encoded(letter)).error == "found '?'"
    assert dict(headers_of(letter))["millstream.error"] == b"found '?'"


def test_headers_say_why_and_from_where() -> None:
    assert headers_of(LETTER) == [
        ("millstream.reason", b"undecodable"),
        ("millstream.error", b"the record ends early"),
        ("millstream.source.topic", b"flights-departures"),
        ("millstream.source.partition", b"3"),
        ("millstream.source.offset", b"41"),
        ("millstream.pipeline", b"flights-delay"),
    ]


def test_long_error_is_cut_between_characters_in_the_header_only() -> None:
    letter = LETTER._replace(error="x" + "é" * 2000)
    assert dict(headers_of(letter))["millstream.error"].decode() == "x" + "é" * 511
    assert decode_dead_letter(encoded(letter)).error == letter.error


@given(LETTERS, st.data())
def test_truncated_letter_is_refused(letter: DeadLetter, data: st.DataObject) -> None:
    value = encoded(letter)
    with pytest.raises(DeadLetterError, match="no dead letter: expected"):
        decode_dead_letter(value[: data.draw(st.integers(0, len(value) - 1))])


def test_trailing_bytes_are_refused() -> None:
    with pytest.raises(DeadLetterError, match="2 bytes too many"):
        decode_dead_letter(encoded(LETTER) + b"ab")


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_a_letter_or_refused(body: bytes) -> None:
    with contextlib.suppress(DeadLetterError):
        assert isinstance(decode_dead_letter(b"\0\0\0\0\1" + body), DeadLetter)


def test_letter_of_an_older_schema_is_read_with_defaults() -> None:
    older = {**DEAD_LETTER.definition, "fields": DEAD_LETTER.definition["fields"][:-1]}
    out = BytesIO(b"\0\0\0\0\7")
    out.seek(5)
    datum = {name: getattr(LETTER, name) for name in LETTER._fields} | {"headers": []}
    fastavro.schemaless_writer(out, fastavro.parse_schema(older), datum)
    assert decode_dead_letter(out.getvalue(), older) == LETTER._replace(headers=(), attempts=1)
