"""Dead letters: the event whole where its topic takes it, without its content where not, and never more than that takes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millstream.consumers.events import Rejection
from millstream.consumers.observability.metrics import DEAD_LETTERS, INTERNAL_ERRORS, SKIPPED
from millstream.consumers.record_headers import HeaderRows, RecordHeaders
from millstream.consumers.sink import dead_letter_sink as module
from millstream.consumers.sink.dead_letter_sink import RECORD_OVERHEAD, DeadLetterOutput, DeadLetterSink, record_bytes
from millstream.consumers.sink.final_counts import FinalCounts
from millstream.schemas.dead_letters import (
    DeadLetter,
    DeadLetterColumns,
    DeadLetterEncoder,
    EncodedLetters,
    decode_dead_letter,
)
from millstream.topics.attempts import ATTEMPTS
from tests.consumers.clock import Clock
from tests.consumers.in_memory import block
from tests.consumers.measured import Measured

if TYPE_CHECKING:
    from millstream.consumers.events import DecodedBatch
    from millstream.consumers.record_types import HeaderList
    from millstream.consumers.sink.delivery import Delivery

LIMIT = 8000  # bytes that the topic takes


class Topic:
    """Refuses what is larger than it takes."""

    def __init__(self) -> None:
        self.letters: list[DeadLetter] = []
        self.keys: list[bytes | None] = []
        self.headers: list[dict[str, bytes]] = []
        self.failures: list[Exception] = []

    def produce_all(self, topic: str, values: list[bytes], keys: list[bytes | None], headers: HeaderRows) -> None:
        if self.failures:
            raise self.failures.pop()
        assert topic == "dead"
        for value, key, of_record in zip(values, keys, headers, strict=True):
            own = {name: content or b"" for name, content in of_record}
            # Rather too few bytes: what the broker counts at least.
            size = len(value) + len(key or b"") + sum(len(name) + len(content) for name, content in own.items())
            assert size <= LIMIT, "the broker would refuse it"
            self.letters.append(decode_dead_letter(value))
            self.keys.append(key)
            self.headers.append(own)


class Writing(Measured):
    """A sink with what is around it."""

    def __init__(self, encoder: DeadLetterEncoder | None = None) -> None:
        super().__init__()
        self.topic = Topic()
        output = DeadLetterOutput("p", "dead", encoder or DeadLetterEncoder(2), LIMIT, frozenset({"expired"}), "p.yaml")
        self._counts = FinalCounts(self.metrics)
        self.sink = DeadLetterSink(cast("Delivery", self.topic), output, self.metrics, self._counts)

    def write(self, one: DecodedBatch, *reasons: str) -> None:
        self.sink.write(one, {row: Rejection(reason, f"error {row}") for row, reason in enumerate(reasons)})
        self._counts.publish()


def event(value: bytes, key: bytes | None = None, headers: HeaderList | None = None) -> DecodedBatch:
    return replace(block("e", 7), values=[value], keys=[key], headers={0: RecordHeaders.of(headers)} if headers else {})


def test_letter_says_all_of_its_event_and_when_it_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch, module, 1_700_000_123.5)
    own = Writing()
    stamped = replace(event(b"v", b"k", [("trace", b"t")]), timestamp_types=np.array([2]))
    own.write(stamped, "unfit")
    (letter,) = own.topic.letters
    assert letter == DeadLetter(
        reason="unfit",
        error="error 0",
        pipeline="p",
        topic="in",
        partition=0,
        offset=7,
        timestamp=1_700_000_000_000,
        failed_at=1_700_000_123_500,
        key=b"k",
        value=b"v",
        timestamp_type="log_append_time",
        headers=(("trace", b"t"),),
        attempts=1,
    )
    assert own.topic.keys == [b"k"]
    assert own.topic.headers[0]["millstream.reason"] == b"unfit"


def test_reasons_that_are_skipped_are_counted_and_not_written() -> None:
    own = Writing()
    own.write(block("eeee"), "expired", "unfit", "expired", "nan_output")
    assert [letter.offset for letter in own.topic.letters] == [1, 3]
    assert own.value(SKIPPED, reason="expired") == 2
    assert own.value(DEAD_LETTERS, reason="unfit") == own.value(DEAD_LETTERS, reason="nan_output") == 1
    assert own.value(DEAD_LETTERS, reason="expired") == 0


def test_letters_written_before_a_failure_are_counted() -> None:
    own = Writing()
    own.write(block("ee"), "unfit", "unfit")
    own.topic.failures.append(RuntimeError("the broker refuses"))
    with pytest.raises(RuntimeError):
        own.write(block("e"), "unfit")
    assert own.value(DEAD_LETTERS, reason="unfit") == 2


@given(st.integers(0, 2 * LIMIT), st.integers(0, 2 * LIMIT), st.integers(0, 2 * LIMIT))
@example(LIMIT - 4096 - RECORD_OVERHEAD, 0, 0)
@example(0, LIMIT, 0)
@example(0, LIMIT // 2, 0)
@example(10, LIMIT - 1500, 0)
def test_letter_is_whole_where_its_topic_takes_it_and_always_written(value: int, key: int, header: int) -> None:
    own = Writing()
    own.write(event(b"v" * value, b"k" * key, [("trace", b"t" * header)]), "unfit")
    (letter,) = own.topic.letters
    assert (letter.reason, letter.offset) == ("unfit", 7)
    # The key is there twice: as the record's, and in the letter.
    if value + 2 * key + header < LIMIT - 1500:
        assert (len(letter.value or b""), len(letter.key or b"")) == (value, key)
        assert own.topic.keys == [b"k" * key]
    elif letter.value is None:
        assert "left out: with them the dead letter is larger than topic dead takes" in letter.error
        assert "the event is at offset 7 of in/0" in letter.error
        assert (letter.key, letter.headers) == (None, ())
        assert own.topic.keys in ([b"k" * key], [None])
        if key < LIMIT - 1500:
            assert own.topic.keys == [b"k" * key], "the record keeps its key where that is taken"


def test_many_letters_without_their_events_make_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    own = Writing()
    for _ in range(50):
        own.write(event(b"v" * LIMIT), "unfit")
    assert len(own.topic.letters) == 50
    assert [record.getMessage() for record in caplog.records] == [
        "1 dead letter written without key, value and headers of its event, such as: offset 7 of in/0 (unfit): with them the "
        "dead letter is larger than topic dead takes (its max.message.bytes)"
    ]
    own.sink.say_all()  # at the end of the worker
    assert caplog.records[1].getMessage().startswith("49 dead letters written without key, value and headers of their")


def test_size_of_a_record_is_that_of_all_its_parts() -> None:
    assert record_bytes(b"vv", b"k", [], 100) == 103
    assert record_bytes(b"vv", None, [], 100) == 102
    assert 103 + 60 <= record_bytes(b"vv", b"k", [("n" * 10, b"c" * 50)], 100) <= 103 + 60 + 50
    assert record_bytes(b"", None, [("é" * 10, None)], 0) >= 20, "names have up to four bytes a character"
    several = record_bytes(b"vv", b"k", [("ab", b"c"), ("d", None)], 100)
    assert several >= 103 + len("abcd")


def test_letter_that_breaks_the_encoder_is_written_without_its_event_and_counted() -> None:
    class Buggy(DeadLetterEncoder):
        def encode(self, letters: DeadLetterColumns) -> EncodedLetters:
            if any(value == b"bad" for value in letters.values):
                raise KeyError("a bug")
            return super().encode(letters)

    own = Writing(Buggy(2))
    own.write(replace(block("eee"), values=[b"v", b"bad", b"w"]), "unfit", "nan_output", "unfit")
    assert [letter.value for letter in own.topic.letters] == [b"v", None, b"w"], (
        "its neighbours are whole, in their order"
    )
    assert "it can't be written: KeyError" in own.topic.letters[1].error
    assert own.value(INTERNAL_ERRORS, stage="encode") == 1
    assert own.value(DEAD_LETTERS, reason="unfit") == 2
    assert own.value(DEAD_LETTERS, reason="nan_output") == 1


def test_large_letter_among_others_loses_its_content_alone() -> None:
    own = Writing()
    own.write(replace(block("eee"), values=[b"v", b"x" * LIMIT, b"w"]), "unfit", "unfit", "unfit")
    assert [letter.value for letter in own.topic.letters] == [b"v", None, b"w"]
    assert [letter.offset for letter in own.topic.letters] == [0, 1, 2]


def test_letters_of_large_events_are_made_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE_BYTES", 3 * RECORD_OVERHEAD)
    made: list[int] = []

    class Counting(DeadLetterEncoder):
        def encode(self, letters: DeadLetterColumns) -> EncodedLetters:
            made.append(len(letters))
            return super().encode(letters)

    own = Writing(Counting(2))
    own.write(block("e" * 9), *["unfit"] * 9)
    assert [letter.offset for letter in own.topic.letters] == list(range(9))
    assert sum(made) == 9
    assert max(made) <= 3


def test_letter_counts_the_attempts_of_a_replayed_event() -> None:
    own = Writing()
    own.write(event(b"v", None, [(ATTEMPTS, b"3")]), "unfit")
    assert own.topic.letters[0].attempts == 4
